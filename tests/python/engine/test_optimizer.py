"""Whole training steps against PyTorch: clip, AdamW, decay by role; bits over threads and micro-batches."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.config import Config, OptimConfig, TrainConfig
from mudd_core.engine.batch_part import cut_batch
from mudd_core.engine.engine import Engine
from near import REORDERED
from reference import torch_training as tt
from small_models import CASES, make, make_batches

BATCH, LENGTH = 8, 17
batches = partial(make_batches, samples=BATCH, length=LENGTH)


def config(name: str, **train: Any) -> Config:
    return Config(
        name="test",
        model=CASES[name][0],
        train=TrainConfig(steps=10, batch_size=BATCH, seq_len=LENGTH, **train),
        optim=OptimConfig(lr=1e-2, weight_decay=0.1, clip=0.5),
    )


@pytest.mark.parametrize("name", CASES)
def test_steps_equal_torch_adamw(name: str) -> None:
    model, cfg, params = make(name, whole_batch=True)
    data = batches(cfg.vocab_size, 5)
    matrices = {k for k in params if k.endswith((".w", ".key", ".value", ".w1", ".w2"))}
    want, losses, norms = tt.adamw_steps(
        params,
        [(b["inputs"], b["targets"]) for b in data],
        cfg,
        lr=1e-2,
        weight_decay=0.1,
        clip=0.5,
        decayed=matrices,
    )
    engine = Engine(config(name), model)
    for step, batch in enumerate(data):
        report = engine.train_step(step, 1e-2, batch)
        assert report.finite
        # Five updates in float32 amplify a difference of the first.
        assert report.loss == pytest.approx(losses[step], rel=2e-4)
        assert report.grad_norm == pytest.approx(norms[step], rel=2e-3)
        assert norms[step] > 0.5  # the clip is active
    for key, value in want.items():
        if key.endswith((".attn.k.b", ".attn.k.value_bias")):
            continue  # its exact gradient is zero (it moves all scores of a row alike); Adam amplifies rounding
        # Adam divides by the root of tiny second moments: a relative error of the gradient moves a weight by up to lr.
        difference = np.abs(model.parameters[key] - value)
        # AdamW turns rounding of a small gradient into a fraction of a step.
        assert np.mean(difference) <= 1e-4, key
        assert difference.max() <= 2e-2, key


def run(name: str, **train: Any) -> dict[str, Any]:
    model, cfg, _ = make(name)
    engine = Engine(config(name, **train), model)
    for step, batch in enumerate(batches(cfg.vocab_size, 3)):
        engine.train_step(step, 1e-2, batch)
    return {key: np.array(value) for key, value in engine.state_tensors().items()}


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return set(a) == set(b) and all(np.array_equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("name", CASES)
def test_micro_batches_recompute_and_threads_never_change_bits(name: str) -> None:
    want = run(name)
    for micro_batch in (1, 4):
        assert equal(run(name, micro_batch_size=micro_batch), want)
    assert equal(run(name, recompute=True, micro_batch_size=2), want)
    try:
        mc.set_num_threads(3)
        assert equal(run(name), want)
    finally:
        mc.set_num_threads(0)
    assert not equal(run(name, logical_shards=1), want)


def test_a_bad_batch_changes_nothing() -> None:
    model, cfg, _ = make("llama_gqa")
    engine = Engine(config("llama_gqa"), model)
    data = batches(cfg.vocab_size, 2)
    engine.train_step(0, 1e-2, data[0])
    before = {key: np.array(value) for key, value in engine.state_tensors().items()}
    weights = np.array(model.parameters["blocks.1.ffn.up.w"])
    broken = weights.copy()
    broken[3, 5] = np.inf
    model.set_parameter("blocks.1.ffn.up.w", broken)
    report = engine.train_step(1, 1e-2, data[1])
    assert not report.finite
    model.set_parameter("blocks.1.ffn.up.w", weights)
    assert equal({key: np.array(value) for key, value in engine.state_tensors().items()}, before)


def test_normalisation_of_the_loss() -> None:
    _, cfg, _ = make("llama_gqa")
    batch = batches(cfg.vocab_size, 1)[0]
    counted = int((batch["targets"] >= 0).sum())
    losses = {}
    for kind in ("valid", "all_slots"):
        settings = config("llama_gqa")
        settings = dataclasses.replace(settings, loss=dataclasses.replace(settings.loss, normalize=kind))
        losses[kind] = Engine(settings, make("llama_gqa")[0]).train_step(0, 0.0, batch).loss
    assert losses["all_slots"] == pytest.approx(losses["valid"] * counted / (BATCH * LENGTH), rel=REORDERED)


def test_cuts_of_the_batch() -> None:
    assert cut_batch(8, 8, 0) == (1, 8)
    assert cut_batch(8, 8, 2) == (4, 2)
    assert cut_batch(6, 8, 0) == (1, 4)
    assert cut_batch(1, 8, 4) == (1, 1)
    assert cut_batch(8, 8, 3) == (4, 2)  # the largest equal micro-batch of at most three sequences
    with pytest.raises(UserError, match="shards of equal size"):
        cut_batch(6, 4, 1)
