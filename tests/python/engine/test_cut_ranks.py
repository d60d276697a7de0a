"""Ranks that cut weights, gradients and state (mesh.zero=3) have the bits of one process."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mudd_core.config import Config, MeshConfig, OptimConfig
from rank_runs import train
from test_ranks import FAMILIES, LARGE, config_of

# Ranks, ranks of a node: several nodes, where weights are gathered, and one, where they stand once.
WORLDS = ((2, 1), (4, 1), (4, 2), (8, 2), (4, 4))


def cut_config(family: str, **settings: Any) -> Config:
    return dataclasses.replace(config_of(family, **settings), mesh=MeshConfig(zero=3))


def check(config: Config, worlds: tuple[tuple[int, int], ...] = WORLDS, **network: Any) -> None:
    want = train(config, 1)
    for world, node_size in worlds:
        assert train(config, world, node_size=node_size, **network) == want, (world, node_size)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(family: str, precision: str) -> None:
    check(cut_config(family, precision=precision))


@pytest.mark.parametrize("family", ["llama_gqa", "mixtral", "mudd_experts"])
@pytest.mark.parametrize("micro", [1, 2, 4])
def test_micro_batches(family: str, micro: int) -> None:
    want = train(cut_config(family), 1)
    for world, node_size in ((2, 1), (4, 2), (4, 4)):
        assert train(cut_config(family, micro_batch_size=micro), world, node_size=node_size) == want, world


@pytest.mark.parametrize("family", ["gpt2", "mixtral"])
def test_a_batch_that_the_shards_do_not_divide(family: str) -> None:
    check(cut_config(family, batch_size=11))


@pytest.mark.parametrize("name", ["lion", "sgd", "muon"])
def test_every_optimizer(name: str) -> None:
    check(cut_config("llama_gqa", optim=OptimConfig(name=name, lr=1e-3)))


@pytest.mark.parametrize("family", ["mixtral", "mudd_experts"])
def test_a_balance_loss_over_the_batch(family: str) -> None:
    check(cut_config(family, model={"aux_scope": "batch"}))


@pytest.mark.parametrize(
    ("family", "model"),
    [
        ("llama_gqa", LARGE | {"d_ff": 400, "n_kv_head": 2}),
        ("gpt2", LARGE | {"d_ff": 400, "tie_embeddings": True, "attn_dropout": 0.1}),
        ("mixtral", LARGE | {"d_ff": 256, "n_kv_head": 2}),
        ("tokenformer", LARGE | {"slot_num": 260, "ffn_slot_num": 390, "drop_path": 0.2}),
    ],
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_large_parameters(family: str, model: dict[str, Any], precision: str) -> None:
    check(cut_config(family, model=model, precision=precision), ((2, 1), (4, 2)))


def test_muon_takes_whole_matrices() -> None:
    config = cut_config("llama_gqa", model=LARGE | {"d_ff": 400}, optim=OptimConfig(name="muon", lr=1e-3))
    check(config, ((4, 1), (4, 4)))


@pytest.mark.parametrize("kind", [None, "bfloat16", "float16"])
def test_frozen_weights_are_gathered_only(kind: str | None) -> None:
    config = cut_config("llama_gqa", trainable="!*.ffn.*", model=LARGE | {"d_ff": 400})
    names = [f"blocks.{layer}.ffn.{part}.w" for layer in (0, 1) for part in ("gate", "up", "down")]
    stored = dict.fromkeys(names, kind) if kind else None
    want = train(config, 1, stored=stored)
    for world, node_size in ((2, 1), (4, 2)):
        assert train(config, world, node_size=node_size, stored=stored) == want, world


@pytest.mark.parametrize("family", FAMILIES)
def test_a_slow_network_changes_no_bit(family: str) -> None:
    """Many buckets, all late: whoever reads a weight or a sum before it has come reads NaN."""
    check(cut_config(family, micro_batch_size=2), ((2, 1), (4, 2)), late=0.002, longest_message=1 << 12)


def test_any_world_is_equal_run_to_run() -> None:
    config = cut_config("llama_gqa", model=LARGE | {"d_ff": 400, "n_kv_head": 2}, batch_size=9)
    assert train(config, 3, node_size=1) == train(config, 3, node_size=1)
