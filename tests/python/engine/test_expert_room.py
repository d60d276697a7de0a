"""The receive buffer for tokens of a rank's experts (mesh.expert_room): its size, and the error if it is too small."""

from __future__ import annotations

import numpy as np

import mudd_core as mc
from mudd_core import _core, dist
from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.engine.engine import Engine
from rank_runs import batch_of, experts_of, on_ranks, train
from test_expert_ranks import config_of

EVEN = 2 * 16 * 2  # tokens for a rank of four: samples, tokens, choices
# If the logits of a router are equal, all tokens choose experts 0 and 1.
REFUSED = (
    "[mesh] blocks.0.ffn:grouped_gemm: this rank received 256 tokens for experts 0 to 1 (128 for expert 0) "
    "but has memory for 128; an even load is 64. Set mesh.expert_room=4 (a multiple of an even load) or more, or a "
    "smaller train.micro_batch_size"
)


def end_of_a_crowded_step(comm: dist.Comm, config: Config, spare: int | None = None) -> tuple[int, str, bool]:
    """Return (code, message, True if the weights are unchanged) of a rank that sends all tokens to experts 0, 1."""
    model = mc.Model(config.model, seed=5, comm=comm, experts=experts_of(comm, config))
    engine = Engine(config, model)
    if spare is not None:
        engine.limit_experts(spare)
    if comm.rank == 0:
        model.set_parameter("blocks.0.ffn.router.w", np.zeros((64, 8), np.float32))
    comm.barrier()
    model.store.repack()
    comm.barrier()
    before = {part.name: part.array.copy() for part in engine.state_parts()}
    code, message = 0, ""
    try:
        engine.train_step(0, 1e-3, batch_of(config, 0))
    except UserError as error:
        code, message = error.exit_code, str(error)
        comm.fail(code, message)
    except _core.PeerError as error:
        message = str(error)
    after = {part.name: part.array for part in engine.state_parts()}
    return code, message, all(np.array_equal(before[name], after[name]) for name in before)


def test_more_rows_than_there_is_room_for_end_the_job_with_one_message() -> None:
    config = config_of(expert=4, room=2.0)
    ends = on_ranks(lambda comm: end_of_a_crowded_step(comm, config), 4)
    assert ends[0] == (2, REFUSED, True)
    assert all(code == 0 and REFUSED in message and same for code, message, same in ends[1:]), ends


def test_without_memory_beyond_the_plan_more_rows_end_the_job() -> None:
    config = config_of(expert=4)
    assert on_ranks(lambda comm: end_of_a_crowded_step(comm, config, spare=0), 4)[0] == (2, REFUSED, True)
    assert {code for code, *_ in on_ranks(lambda comm: end_of_a_crowded_step(comm, config), 4)} == {0}


def test_enough_room_changes_no_bit() -> None:
    assert train(config_of(expert=4, room=4.0), 4) == train(config_of(), 1)


def test_a_plan_counts_the_room() -> None:
    def booked(room: float) -> tuple[int, int]:
        group = _core.ExpertGroup(4, 0, 4, room)
        executor = mc.Model(config_of().model, booked_only=True, experts=group).plan("train", 2, 16).executor
        return executor.arena_bytes, executor.likely_bytes

    (all_addresses, twice), (exact, counted), (wide, _) = booked(0.0), booked(2.0), booked(9.0)
    assert counted == twice <= exact < all_addresses == wide
    assert exact - counted < 1024, "more than alignment"
