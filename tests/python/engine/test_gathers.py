"""Weights that a graph gathers (mesh.zero=3): when, into which buffers, and what ranks keep and send."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

import mudd_core as mc
from mudd_core.config import Config, MeshConfig
from mudd_core.dist import Comm
from mudd_core.engine.cut import Cut
from mudd_core.engine.engine import Engine
from mudd_core.run.build.planned_model import cut_of
from rank_runs import batch_of, on_ranks
from test_ranks import LARGE, config_of

SHAPE = config_of("llama_gqa", model=LARGE | {"d_ff": 400, "n_kv_head": 2, "n_layer": 5}).model
Span = tuple[str, int, int, int, int]  # name, bytes, first, last, offset


def spans(precision: str = "fp32") -> list[Span]:
    """Return the gathered buffers of a training graph of one rank of four, in the order of the gathers."""
    model = mc.Model(SHAPE, booked_only=True, precision=precision, cut=Cut(4, 0, True))
    executor = model.plan("train", 2, 16, cut_gradients=True).executor
    table = [row for row in executor.memory_table() if row[1] == "weights"]
    assert max(size + offset for _, _, size, _, _, offset in table) == executor.weight_bytes
    return [(what, size, first, last, offset) for what, _, size, first, last, offset in table]


def test_layers_are_gathered_once_forward_and_once_backward() -> None:
    layers = [f"blocks.{layer}" for layer in range(5)]
    names = [name for name, *_ in spans()]
    assert names[:6] == ["embed", *layers]
    assert names[6:] == ["final_norm.gain", "head", "final_norm.gain", *reversed(layers)]


def test_a_layer_is_on_its_way_while_the_one_before_is_read() -> None:
    found = spans()
    for (_, _, begin, last, _), (_, _, next_begin, next_last, _) in itertools.pairwise(found):
        assert begin <= next_begin <= last < next_last


def test_buffers_that_live_at_one_time_do_not_overlap() -> None:
    found = spans()
    for i, (_, size, first, last, offset) in enumerate(found):
        for _, other_size, other_first, other_last, other_offset in found[i + 1 :]:
            if other_first <= last and first <= other_last:
                assert offset + size <= other_offset or other_offset + other_size <= offset


def test_two_layers_are_all_that_is_whole() -> None:
    found = spans()
    layer = next(size for name, size, *_ in found if name == "blocks.0")
    table = next(size for name, size, *_ in found if name == "embed")
    assert max(size + offset for _, size, _, _, offset in found) <= table + 2 * layer
    halves = [size for name, size, *_ in spans("bf16") if name == "blocks.0"]
    assert all(size < 0.51 * layer for size in halves)


def test_a_rank_holds_its_slices_alone() -> None:
    whole = mc.Model(SHAPE, booked_only=True).store.plane_bytes
    held = [mc.Model(SHAPE, booked_only=True, cut=Cut(4, rank, True)).store.plane_bytes for rank in range(4)]
    assert whole <= sum(held) < 1.01 * whole
    assert max(held) < 1.2 * whole / 4


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("world", [2, 4])
def test_bytes_on_the_wire_are_those_of_the_formula(world: int, precision: str) -> None:
    config: Config = dataclasses.replace(
        config_of("llama_gqa", micro_batch_size=4 // world, precision=precision),
        model=SHAPE,
        mesh=MeshConfig(zero=3),
    )

    def work(comm: Comm) -> tuple[int, int, int]:
        model = mc.Model(SHAPE, seed=5, comm=comm, precision=precision, cut=cut_of(SHAPE, config, comm))
        engine = Engine(config, model)
        engine.train_step(0, 1e-3, batch_of(config, 0))
        before = comm.counters()
        engine.train_step(1, 1e-3, batch_of(config, 1))
        after = comm.counters()
        sent = [after[purpose][1] - before[purpose][1] for purpose in ("gather", "sum")]
        gathered = sum(row[2] for row in engine.executor.memory_table() if row[1] == "weights")
        return sent[0], sent[1], gathered

    runs, share = 2, (world - 1) / world
    found = on_ranks(work, world, node_size=1)
    gathers, sums, gathered = (sum(column) / world for column in zip(*found, strict=True))
    # Sizes that are not divisible leave some ranks a little more.
    assert gathers == pytest.approx(runs * gathered * share, rel=0.02)
    model = mc.Model(SHAPE, booked_only=True)
    dense = 4 * (
        model.n_parameters - SHAPE.vocab_size * SHAPE.d_model
    )  # of the table only the rows that were read
    rows = 4 * SHAPE.d_model * SHAPE.vocab_size
    assert runs * dense * share * 0.98 <= sums <= runs * (dense + rows) * share * 1.02
