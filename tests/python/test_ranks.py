"""Ranks that share every batch have the bits of one process: all families, worlds, precisions, cuts of the batch."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from mudd_core.config import Config, OptimConfig, TrainConfig
from rank_runs import train
from small_models import CASES

FAMILIES = ("llama_gqa", "gpt2", "mudd", "tokenformer", "mup", "mixtral")


def config_of(
    family: str, *, model: dict[str, Any] | None = None, optim: Any = None, **settings: Any
) -> Config:
    sizes = {"batch_size": 8, "seq_len": 16, "seed": 5, "logical_shards": 8, "threads": 1}
    return Config(
        name=family,
        model=dataclasses.replace(CASES[family][0], **{"vocab_size": 61, "max_seq_len": 16, **(model or {})}),
        train=TrainConfig(**{**sizes, **settings}),
        optim=optim or OptimConfig(lr=3e-3),
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_worlds_of_every_family_have_the_bits_of_one(family: str, precision: str) -> None:
    config = config_of(family, precision=precision)
    want = train(config, 1)
    for world in (2, 4, 8):
        assert train(config, world) == want, world


@pytest.mark.parametrize("family", ["llama_gqa", "mixtral"])
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


def test_a_balance_loss_over_the_batch() -> None:
    config = config_of("mixtral", model={"aux_scope": "batch"})
    want = train(config, 1)
    assert train(config_of("mixtral"), 1) != want
    for world in (2, 4, 8):
        assert train(config, world) == want, world


LARGE = {"d_model": 192, "n_layer": 2, "n_head": 4, "vocab_size": 700}


@pytest.mark.parametrize(
    ("family", "model"),
    [
        ("llama_gqa", LARGE | {"d_ff": 400, "n_kv_head": 2}),
        ("gpt2", LARGE | {"d_ff": 400}),
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
