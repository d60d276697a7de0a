"""Experts dealt out to ranks (mesh.expert): the bits of one process, by worlds, groups, precisions and capacities."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import mudd_core as mc
from mudd_core import dist
from mudd_core.config import Config, MeshConfig, OptimConfig, TrainConfig
from mudd_core.engine.engine import Engine
from rank_runs import batch_of, on_ranks, train
from small_models import CASES

MIXTURES = ("mixtral", "mudd_experts")
# An expert has whole blocks of 4,096 numbers.
SIZES = {"vocab_size": 61, "max_seq_len": 16, "d_model": 64, "n_head": 4, "n_kv_head": 2, "d_ff": 64, "n_expert": 8}


def config_of(family: str = "mixtral", *, expert: int = 1, model: dict[str, Any] | None = None, **settings: Any) -> Config:
    sizes = {"batch_size": 8, "seq_len": 16, "seed": 5, "logical_shards": 8, "threads": 1}
    optim = settings.pop("optim", OptimConfig(lr=3e-3))
    return Config(
        name=family,
        model=dataclasses.replace(CASES[family][0], **SIZES, **(model or {})),
        train=TrainConfig(**{**sizes, **settings}),
        optim=optim,
        mesh=MeshConfig(expert=expert),
    )


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
    """Of 16 experts 4 tokens reach 8 at most."""
    sizes = {"seq_len": 2, "batch_size": 2, "logical_shards": 2}
    model = {"n_expert": 16}
    assert train(config_of(model=model, expert=2, **sizes), 2) == train(config_of(model=model, **sizes), 1)


def test_late_messages_change_no_bit() -> None:
    want = train(config_of(), 1)
    assert train(config_of(expert=2), 4, node_size=1, late=0.002, longest_message=4096) == want
