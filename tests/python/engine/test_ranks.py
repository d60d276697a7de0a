"""Ranks that split every batch have the bits of one process: all families, worlds, precisions and batch splits."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core import _core, dist
from mudd_core.config import Config, OptimConfig
from mudd_core.engine.engine import Engine
from near import REORDERED
from rank_runs import batch_of, config_in_shards, on_ranks, train
from small_models import CASES

FAMILIES = ("llama_gqa", "gpt2", "mudd", "tokenformer", "mup", "mixtral", "mudd_experts")


def config_of(
    family: str, *, model: dict[str, Any] | None = None, optim: Any = None, **settings: Any
) -> Config:
    fields = {"vocab_size": 61, "max_seq_len": 16, **(model or {})}
    return config_in_shards(dataclasses.replace(CASES[family][0], **fields), optim=optim, **settings)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_worlds_of_every_family_have_the_bits_of_one(family: str, precision: str) -> None:
    config = config_of(family, precision=precision)
    want = train(config, 1)
    for world in (2, 4, 8):
        assert train(config, world) == want, world


@pytest.mark.parametrize("family", ["llama_gqa", "mixtral", "mudd_experts"])
@pytest.mark.parametrize("micro", [1, 2, 4])
def test_micro_batches_of_ranks_change_no_bit(family: str, micro: int) -> None:
    want = train(config_of(family), 1)
    for world in (1, 2, 4):
        assert train(config_of(family, micro_batch_size=micro), world) == want, world


@pytest.mark.parametrize("family", ["gpt2", "mixtral"])
def test_a_batch_that_the_shards_do_not_divide(family: str) -> None:
    config = config_of(family, batch_size=11)
    want = train(config, 1)
    for world in (2, 4, 8):
        assert train(config, world) == want, world


@pytest.mark.parametrize("name", ["lion", "sgd", "muon"])
def test_every_optimizer(name: str) -> None:
    config = config_of("llama_gqa", optim=OptimConfig(name=name, lr=1e-3))
    want = train(config, 1)
    for world in (2, 4):
        assert train(config, world) == want, world


@pytest.mark.parametrize("family", ["mixtral", "mudd_experts"])
def test_a_balance_loss_over_the_batch(family: str) -> None:
    config = config_of(family, model={"aux_scope": "batch"})
    want = train(config, 1)
    assert train(config_of(family), 1) != want
    for world in (2, 4, 8):
        assert train(config, world) == want, world


LARGE = {"d_model": 192, "n_layer": 2, "n_head": 4, "vocab_size": 700}


@pytest.mark.parametrize(
    ("family", "model"),
    [
        ("llama_gqa", LARGE | {"d_ff": 400, "n_kv_head": 2}),
        ("gpt2", LARGE | {"d_ff": 400, "attn_dropout": 0.1, "resid_dropout": 0.2, "embd_dropout": 0.1}),
        ("mixtral", LARGE | {"d_ff": 256, "n_kv_head": 2}),
        ("tokenformer", LARGE | {"slot_num": 260, "ffn_slot_num": 390, "drop_path": 0.2}),
    ],
)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_parameters_that_are_cut_among_ranks(family: str, model: dict[str, Any], precision: str) -> None:
    config = config_of(family, model=model, precision=precision)
    want = train(config, 1)
    for world in (2, 4):
        assert train(config, world) == want, world


def test_a_tied_head_is_summed_use_by_use() -> None:
    config = config_of("gpt2", model=LARGE | {"d_ff": 400, "tie_embeddings": True})
    assert train(config, 4) == train(config, 1)


def test_muon_takes_whole_matrices_of_ranks() -> None:
    config = config_of("llama_gqa", model=LARGE | {"d_ff": 400}, optim=OptimConfig(name="muon", lr=1e-3))
    assert train(config, 4) == train(config, 1)


def test_any_world_is_near_one_process_and_equal_run_to_run() -> None:
    config = config_of("llama_gqa", model=LARGE | {"d_ff": 400, "n_kv_head": 2}, batch_size=9)
    want = [float.fromhex(loss) for loss in train(config, 1).losses]
    for world in (3, 5, 6, 7):
        got = train(config, world)
        assert train(config, world) == got, world
        assert np.allclose([float.fromhex(loss) for loss in got.losses], want, rtol=REORDERED, atol=0), world


def test_jitter_follows_the_sample_and_not_the_rank() -> None:
    config = config_of("mixtral", model={"jitter": 0.2})
    assert train(config, 4) == train(config, 1)


def test_a_stop_drops_the_step_on_all_ranks_or_on_none() -> None:
    config = config_of("llama_gqa", micro_batch_size=1)

    def work(comm: dist.Comm) -> list[bool]:
        engine = Engine(config, mc.Model(config.model, seed=5, comm=comm))
        stopped = []
        for step in range(6):
            comm.barrier()
            if comm.rank == 1:
                _core.request_stop()  # the other rank may have started its last graph run already
            stopped.append(bool(engine.train_step(step, 1e-3, batch_of(config, step)).stopped))
            comm.barrier()
            if comm.rank == 1:
                _core.clear_requests()
            comm.barrier()
        return stopped

    first, second = on_ranks(work, 2, limit=30)
    assert first == second
    assert any(first)


def test_flags_of_one_rank_reach_all() -> None:
    config = config_of("llama_gqa")

    def work(comm: dist.Comm) -> int:
        engine = Engine(config, mc.Model(config.model, seed=5, comm=comm))
        return int(engine.train_step(0, 1e-3, batch_of(config, 0), flags=2 if comm.rank == 1 else 4).flags)

    assert on_ranks(work, 2) == [6, 6]


def test_numbers_that_are_not_finite_on_one_rank_skip_the_update_of_all() -> None:
    config = config_of("llama_gqa")

    def work(comm: dist.Comm) -> tuple[bool, bool, str]:
        model = mc.Model(config.model, seed=5, comm=comm)
        engine = Engine(config, model)
        name = next(n for n in model.parameters if "embed" in n)
        table = np.array(model.parameters[name])
        comm.barrier()
        batch = batch_of(config, 0)
        poisoned = int(batch["inputs"][5, 3])  # a sample of the second rank
        batch["inputs"][:5][batch["inputs"][:5] == poisoned] = (poisoned + 1) % config.model.vocab_size
        table[poisoned] = np.nan
        if comm.rank == 0:
            model.set_parameter(name, table)
        comm.barrier()
        report = engine.train_step(0, 1e-3, batch)
        after = model.parameters[name]
        where = engine.first_nonfinite(0).partition(":")[0]
        return bool(report.finite), np.array_equal(after, table, equal_nan=True), where

    assert on_ranks(work, 2) == [
        (False, True, "the sum over the batch"),
        (False, True, "embedding (forward)"),
    ]


def test_an_error_on_one_rank_ends_the_others() -> None:
    def work(comm: dist.Comm) -> None:
        if comm.rank == 1:
            raise RuntimeError("a fault on purpose")
        with pytest.raises(RuntimeError, match=r"rank 1 .*a fault on purpose"):
            comm.barrier()

    with pytest.raises(RuntimeError, match=r"^a fault on purpose"):
        on_ranks(work, 3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_nodes_have_the_bits_of_one_process(family: str, precision: str) -> None:
    config = config_of(family, precision=precision)
    want = train(config, 1)
    for world, node_size in ((2, 1), (4, 1), (4, 2), (8, 2)):
        assert train(config, world, node_size=node_size) == want, (world, node_size)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_slow_network_changes_no_bit(family: str) -> None:
    """Many buckets, all late: reading a weight or a sum before it has arrived returns NaN."""
    config = config_of(family)
    want = train(config, 1)
    for world, node_size in ((2, 1), (4, 2)):
        got = train(config, world, node_size=node_size, longest_message=1 << 12, late=0.003)
        assert got == want, (world, node_size)


def test_packed_copies_of_one_rank_wait_for_the_weights_of_other_nodes() -> None:
    config = config_of("llama_gqa")
    batch = batch_of(config, 0)

    def work(comm: dist.Comm) -> bytes:
        model = mc.Model(config.model, seed=5, comm=comm if comm.world > 1 else None)
        model.logits(batch["inputs"])  # creates the copies
        engine = Engine(config, model)
        engine.train_step(0, 1e-2, batch, settle=False)
        return model.logits(batch["inputs"]).tobytes()

    [want] = on_ranks(work, 1)
    assert on_ranks(work, 4, 2, longest_message=1 << 12, late=0.003) == [want] * 4


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_parameters_that_are_cut_among_nodes(precision: str) -> None:
    config = config_of("llama_gqa", model=LARGE | {"d_ff": 400, "n_kv_head": 2}, precision=precision)
    want = train(config, 1)
    for world, node_size in ((2, 1), (4, 2), (4, 1)):
        assert train(config, world, node_size=node_size) == want, (world, node_size)


def test_any_world_of_nodes_is_near_one_process() -> None:
    config = config_of("llama_gqa", model=LARGE | {"d_ff": 400, "n_kv_head": 2}, batch_size=9)
    want = [float.fromhex(loss) for loss in train(config, 1).losses]
    for world, node_size in ((3, 1), (6, 2)):
        got = train(config, world, node_size=node_size)
        assert train(config, world, node_size=node_size) == got, world
        assert np.allclose([float.fromhex(loss) for loss in got.losses], want, rtol=REORDERED, atol=0), world
