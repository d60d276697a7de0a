"""Experts sharded across ranks (mesh.expert): the bits of one process, by worlds, groups, precisions and capacities."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core import _core, dist
from mudd_core.checkpoint import final_hash
from mudd_core.config import Config, MeshConfig, OptimConfig
from mudd_core.engine.engine import Engine
from rank_runs import batch_of, config_in_shards, on_ranks, train
from rank_states import train_between
from small_models import CASES, DEALT

MIXTURES = ("mixtral", "mudd_experts")


def config_of(
    family: str = "mixtral",
    *,
    expert: int = 1,
    zero: int = 1,
    room: float = 0.0,
    model: dict[str, Any] | None = None,
    **settings: Any,
) -> Config:
    config = config_in_shards(dataclasses.replace(CASES[family][0], **{**DEALT, **(model or {})}), **settings)
    return dataclasses.replace(config, mesh=MeshConfig(expert=expert, zero=zero, expert_room=room))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("family", MIXTURES)
def test_experts_of_ranks_have_the_bits_of_one_process(family: str, precision: str) -> None:
    want = train(config_of(family, precision=precision), 1)
    for world, expert in ((2, 2), (4, 2), (4, 4), (8, 2)):
        assert train(config_of(family, expert=expert, precision=precision), world) == want, (world, expert)


@pytest.mark.parametrize("world_node_expert", [(2, 1, 2), (4, 1, 2), (4, 2, 4), (8, 2, 4)])
def test_nodes_have_the_bits_of_one_process(world_node_expert: tuple[int, int, int]) -> None:
    world, node_size, expert = world_node_expert
    assert train(config_of(expert=expert), world, node_size=node_size) == train(config_of(), 1)


@pytest.mark.parametrize("family", MIXTURES)
@pytest.mark.parametrize(("precision", "micro"), [("fp32", 0), ("bf16", 2), ("fp32", 1)])
def test_a_dense_part_that_is_cut_has_the_bits_of_one_process(
    family: str, precision: str, micro: int
) -> None:
    want = train(config_of(family, precision=precision), 1)
    for world, node_size, expert in ((4, 1, 2), (4, 2, 2), (4, 4, 2), (4, 2, 4), (8, 2, 2)):
        config = config_of(family, expert=expert, zero=3, precision=precision, micro_batch_size=micro)
        assert train(config, world, node_size=node_size) == want, (world, node_size, expert)


def test_late_messages_change_no_bit_of_a_cut_dense_part() -> None:
    config = config_of(expert=2, zero=3, micro_batch_size=2)
    assert train(config, 4, node_size=1, late=0.002, longest_message=4096) == train(config_of(), 1)


def test_a_batch_that_the_shards_do_not_divide() -> None:
    want = train(config_of(batch_size=11), 1)
    for world, expert in ((2, 2), (4, 2), (4, 4)):
        assert train(config_of(batch_size=11, expert=expert), world) == want, (world, expert)


@pytest.mark.parametrize("micro", [1, 2])
def test_micro_batches_change_no_bit(micro: int) -> None:
    want = train(config_of(), 1)
    for world, expert in ((2, 2), (4, 2), (4, 4)):
        assert train(config_of(expert=expert, micro_batch_size=micro), world) == want, (world, expert)


@pytest.mark.parametrize("scope", ["sequence", "shard"])
@pytest.mark.parametrize("policy", ["position", "probs"])
def test_capacity(scope: str, policy: str) -> None:
    model = {"capacity_factor": 0.8, "capacity_scope": scope, "drop_policy": policy}
    want = train(config_of(model=model), 1)
    assert want != train(config_of(), 1)
    assert train(config_of(model=model, expert=2), 4) == want


def test_a_balance_loss_over_the_batch() -> None:
    model = {"aux_scope": "batch", "jitter": 0.1}
    assert train(config_of(model=model, expert=4), 4) == train(config_of(model=model), 1)


@pytest.mark.parametrize("name", ["lion", "sgd", "muon"])
def test_every_optimizer(name: str) -> None:
    optim = OptimConfig(name=name, lr=1e-3)
    assert train(config_of(optim=optim, expert=2), 4) == train(config_of(optim=optim), 1)


def test_an_expert_without_tokens() -> None:
    """Check that 4 tokens with two choices each, which reach at most 8 of 16 experts, train."""
    sizes = {"seq_len": 2, "batch_size": 2, "logical_shards": 2}
    model = {"n_expert": 16}
    assert train(config_of(model=model, expert=2, **sizes), 2) == train(config_of(model=model, **sizes), 1)


def test_late_messages_change_no_bit() -> None:
    want = train(config_of(), 1)
    assert train(config_of(expert=2), 4, node_size=1, late=0.002, longest_message=4096) == want


def test_frozen_experts_and_those_stored_in_16_bits() -> None:
    config = config_of(expert=2, trainable="!*.gate.w")

    def work(comm: dist.Comm, stored: dict[str, str]) -> str:
        group = comm.expert_group(2) if comm.world > 1 else None
        model = mc.Model(
            config.model, seed=5, comm=comm if comm.world > 1 else None, stored=stored, experts=group
        )
        engine = Engine(dataclasses.replace(config, mesh=MeshConfig(expert=model.store.expert_ranks)), model)
        for step in range(2):
            engine.train_step(step, 3e-3, batch_of(config, step))
        return final_hash(engine.state_parts(), comm)

    frozen = {
        name: "bfloat16"
        for name in mc.Model(config.model, booked_only=True).store.names()
        if ".gate.w" in name
    }
    for stored in ({}, frozen):
        want = on_ranks(partial(work, stored=stored), 1)
        assert on_ranks(partial(work, stored=stored), 4) == want * 4


def test_a_rank_takes_memory_for_its_own_experts_alone() -> None:
    config = config_of(expert=4)

    def work(comm: dist.Comm) -> dict[str, int]:
        engine = Engine(config, mc.Model(config.model, seed=5, comm=comm, experts=comm.expert_group(4)))
        return engine.expert_report()

    experts = 3 * 3 * 8 * 64 * 64  # layers, matrices, experts
    for report in on_ranks(work, 8):
        assert report["weights"] == experts * 4 // 4
        assert report["moments"] == experts * 8 // 8


def test_evaluation_and_generation_over_ranks_have_the_bits_of_one_process() -> None:
    config = config_of(expert=2)

    def work(comm: dist.Comm) -> tuple[tuple[float, int, int], list[int]]:
        group = comm.expert_group(2) if comm.world > 1 else None
        model = mc.Model(config.model, seed=5, comm=comm if comm.world > 1 else None, experts=group)
        return model.evaluate(batch_of(config, 0)), list(model.generate([1, 2, 3], max_tokens=8))

    want = on_ranks(work, 1)
    assert on_ranks(work, 2) == want * 2


def test_a_bad_number_is_found_by_all_ranks_together() -> None:
    config = config_of(expert=2)

    def work(comm: dist.Comm) -> tuple[bool, str]:
        model = mc.Model(config.model, seed=5, comm=comm, experts=comm.expert_group(2))
        engine = Engine(config, model)
        name = "blocks.1.ffn.up.w"
        if comm.rank == 1:
            model.set_parameter(name, np.full((8, 64, 64), np.nan, np.float32))
        model.store.repack()  # of all ranks together
        report = engine.train_step(0, 1e-3, batch_of(config, 0))
        return bool(report.finite), engine.first_nonfinite(0)

    found = on_ranks(work, 2)
    assert [finite for finite, _ in found] == [False, False]
    assert all("blocks.1.ffn.out:grouped_gemm" in where or "blocks.1" in where for _, where in found)


def test_a_run_through_many_meshes_ends_with_the_bits_of_one(memory_path: Path) -> None:
    def steps(folder: str, world: int, expert: int, zero: int, begin: int, end: int) -> str:
        config = config_of(expert=expert, zero=zero)
        first, *others = on_ranks(
            lambda comm: train_between(comm, config, memory_path / folder, begin, end), world, min(world, 2)
        )
        assert all(other == first for other in others)
        return first

    to_expert_2 = ((1, 1, 1), (2, 1, 1), (4, 1, 1), (4, 1, 3), (1, 1, 1), (2, 2, 1))
    meshes = (*to_expert_2, (4, 2, 3), (4, 4, 1), (4, 4, 3), (1, 1, 1))
    wanted = steps("one", 1, 1, 1, 0, len(meshes))
    found = ""
    for begin, (world, expert, zero) in enumerate(meshes):
        found = steps("many", world, expert, zero, begin, begin + 1)
    assert found == wanted


def test_a_model_whose_experts_are_elsewhere_says_so() -> None:
    model = mc.Model(config_of().model, booked_only=True, experts=_core.ExpertGroup(2, 0, 2))
    assert model.store.expert_ranks == 2
    with pytest.raises(ValueError, match=r"not divide the 8 experts"):
        mc.Model(config_of().model, booked_only=True, experts=_core.ExpertGroup(3, 0, 3))
