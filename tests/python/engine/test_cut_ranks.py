"""Ranks that shard weights, gradients and state (mesh.zero=3) have the bits of one process."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core import _core
from mudd_core.config import Config, MeshConfig, OptimConfig
from mudd_core.dist import Comm
from mudd_core.engine.engine import Engine
from mudd_core.run.build.planned_model import cut_of
from rank_runs import batch_of, on_ranks, train
from test_ranks import FAMILIES, LARGE, config_of

# (ranks, ranks per host). With several hosts weights are gathered; on one host they are stored once.
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
    """Many buckets, all late: reading a weight or a sum before it has arrived returns NaN."""
    check(cut_config(family, micro_batch_size=2), ((2, 1), (4, 2)), late=0.002, longest_message=1 << 12)


def test_any_world_is_equal_run_to_run() -> None:
    config = cut_config("llama_gqa", model=LARGE | {"d_ff": 400, "n_kv_head": 2}, batch_size=9)
    assert train(config, 3, node_size=1) == train(config, 3, node_size=1)


def engine_of(config: Config, comm: Comm) -> Engine:
    model = mc.Model(config.model, seed=5, comm=comm, cut=cut_of(config.model, config, comm))
    return Engine(config, model)


@pytest.mark.parametrize("node_size", [1, 2])
def test_a_stop_drops_the_step_on_all_ranks_or_on_none(node_size: int) -> None:
    config = cut_config("llama_gqa", micro_batch_size=1)

    def work(comm: Comm) -> list[bool]:
        engine = engine_of(config, comm)
        stopped = []
        for step in range(6):
            comm.barrier()
            if comm.rank == 1:
                _core.request_stop()
            stopped.append(bool(engine.train_step(step, 1e-3, batch_of(config, step)).stopped))
            comm.barrier()
            if comm.rank == 1:
                _core.clear_requests()
            comm.barrier()
        return stopped

    first, second = on_ranks(work, 2, node_size, limit=30)
    assert first == second and any(first)


def test_a_bad_number_of_one_owner_skips_the_update_of_all_and_is_found() -> None:
    config = cut_config("llama_gqa", micro_batch_size=2)

    def work(comm: Comm) -> tuple[bool, str]:
        engine = engine_of(config, comm)
        for part in engine.state_parts(writable=True):
            if part.name == "blocks.1.ffn.up.w" and part.begin == 0:  # the owner
                part.array.reshape(-1)[:1] = np.nan
        report = engine.train_step(0, 1e-3, batch_of(config, 0))
        return bool(report.finite), engine.first_nonfinite(0).partition(":")[0]

    assert on_ranks(work, 2, 1) == [(False, "linear (forward) in blocks.1.ffn.up")] * 2
