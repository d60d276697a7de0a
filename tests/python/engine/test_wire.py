"""mesh.wire=bf16: gradients between hosts take half the bytes, and the bits depend on the number of hosts alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.config import Config, MeshConfig, OptimConfig
from mudd_core.config.mesh_fit import mesh_faults
from mudd_core.dist import Comm
from mudd_core.engine.engine import Engine
from rank_runs import batch_of, config_in_shards, on_ranks, train
from small_models import CASES

WIDE = {"d_model": 192, "n_layer": 2, "n_head": 4, "vocab_size": 700}
SLOW = {"longest_message": 1 << 12, "late": 0.003}


def config_of(family: str = "llama_gqa", wire: str = "bf16", **settings: Any) -> Config:
    sizes = {"vocab_size": 61, "max_seq_len": 16, **settings.pop("model", {})}
    config = config_in_shards(dataclasses.replace(CASES[family][0], **sizes), **settings)
    return dataclasses.replace(config, mesh=MeshConfig(wire=wire))


@pytest.mark.parametrize(
    ("family", "model"),
    [
        ("llama_gqa", {}),
        ("gpt2", {"d_model": 192, "d_ff": 400, "n_head": 4, "vocab_size": 700, "tie_embeddings": True}),
        ("mudd", {}),
        ("mixtral", {}),
    ],
)
def test_the_bits_depend_on_the_number_of_hosts_alone(family: str, model: dict[str, Any]) -> None:
    config = config_of(family, model=model)
    want = train(config, 2, node_size=1)
    for world, node_size in ((2, 1), (4, 2), (8, 4)):
        assert train(config, world, node_size=node_size) == want, (world, node_size)
    assert train(config, 2, node_size=1, **SLOW) == want
    for changed in ({"micro_batch_size": 1}, {"threads": 2}):
        other = dataclasses.replace(config, train=dataclasses.replace(config.train, **changed))
        assert train(other, 2, node_size=1) == want, changed
    assert want.state != train(config_of(family, "fp32", model=model), 1).state
    four = train(config, 4, node_size=1)
    assert four == train(config, 8, node_size=2) and four.state != want.state


def test_one_host_sends_nothing_and_has_the_bits_of_fp32() -> None:
    want = train(config_of(wire="fp32"), 1)
    assert train(config_of(), 1) == train(config_of(), 4) == want


@pytest.mark.parametrize("optimizer", ["muon", "lion"])
def test_optimizers_of_whole_matrices_too(optimizer: str) -> None:
    sizes = WIDE | {"d_ff": 400, "n_kv_head": 2}
    config = config_of(model=sizes, optim=OptimConfig(name=optimizer, lr=1e-3))
    assert train(config, 2, node_size=1) == train(config, 4, node_size=2)


def test_hosts_that_do_not_divide_the_shards_are_near_fp32_and_equal_run_to_run() -> None:
    config = config_of(model=WIDE | {"d_ff": 400, "n_kv_head": 2}, batch_size=9)
    want = [float.fromhex(loss) for loss in train(dataclasses.replace(config, mesh=MeshConfig()), 1).losses]
    got = train(config, 3, node_size=1)
    assert got == train(config, 3, node_size=1)
    # Gradients with an error of 2^-8 at most move a weight by less than lr; the losses of three steps show it little.
    assert np.allclose([float.fromhex(loss) for loss in got.losses], want, rtol=1e-3, atol=0)


def test_the_sums_take_half_the_bytes_and_the_weights_all_of_theirs() -> None:
    def sent(wire: str) -> dict[str, int]:
        # No table, because messages of its rows contain a bitmap too.
        config = config_of(wire=wire, model=WIDE | {"d_ff": 400, "n_kv_head": 2})
        config = dataclasses.replace(config, train=dataclasses.replace(config.train, trainable="*,!embed"))

        def work(comm: Comm) -> dict[str, int]:
            engine = Engine(config, mc.Model(config.model, seed=5, comm=comm))
            engine.train_step(0, 1e-3, batch_of(config, 0))
            return {purpose: bytes_ for purpose, (_, bytes_) in comm.counters().items()}

        found = on_ranks(work, 2, 1)
        return {purpose: sum(one[purpose] for one in found) for purpose in ("sum", "gather")}

    fp32, bf16 = sent("fp32"), sent("bf16")
    assert fp32["sum"] == 2 * bf16["sum"] > 0
    assert fp32["gather"] == bf16["gather"] > 0


@pytest.mark.parametrize("wire", ["fp32", "bf16"])
def test_the_rounding_follows_the_number_of_the_step(wire: str) -> None:
    """A resumed run rounds like an unbroken run: the rounding depends on no state."""
    config = config_of(wire=wire)

    def updated(step: int) -> dict[str, bytes]:
        def work(comm: Comm) -> dict[str, bytes]:
            model = mc.Model(config.model, seed=5, comm=comm)
            Engine(config, model).train_step(step, 1e-3, batch_of(config, 0), settle=True)
            return {name: value.tobytes() for name, value in model.parameters.items()}

        return on_ranks(work, 2, 1)[0]

    assert updated(3) == updated(3)
    assert (updated(3) == updated(4)) == (wire == "fp32")


@pytest.mark.parametrize(
    ("mesh", "said"),
    [
        ({"zero": 3}, "[mesh] wire=bf16: with zero=3 the gradients of every micro-batch are sent"),
        ({"expert": 2}, "[mesh] wire=bf16: not with expert=2"),
    ],
)
def test_meshes_that_sum_otherwise_are_refused(mesh: dict[str, int], said: str) -> None:
    config = config_of("mixtral")
    config = dataclasses.replace(config, mesh=dataclasses.replace(config.mesh, **mesh))
    found = [fault for fault in mesh_faults(config) if "wire" in fault]
    assert len(found) == 1 and found[0].startswith(said) and "use mesh.wire=fp32" in found[0]
    with pytest.raises(UserError, match=r"mesh.wire: expected one of fp32, bf16, got 'fp16'"):
        mc.load_config("tiny.py", ["mesh.wire=fp16"])
