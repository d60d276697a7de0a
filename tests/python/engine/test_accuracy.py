"""Accuracy: the fraction of targets that a model guesses, in training and validation, for any split of the batch."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
import rank_runs
from mudd_core.config import Config
from mudd_core.engine.accuracy import SAMPLE_ACCURACY
from mudd_core.engine.engine import Engine
from mudd_core.run.loop.evaluate import evaluate
from mudd_core.run.records.events import StepRecord
from near import FLOAT64
from small_models import CASES

FAMILIES = ("llama_gqa", "tokenformer")
ROWS, LENGTH = 8, 9


def config_of(family: str, *, micro: int = 0, precision: str = "fp32") -> Config:
    config = Config(model=CASES[family][0])
    train = dataclasses.replace(
        config.train,
        batch_size=ROWS,
        seq_len=LENGTH,
        micro_batch_size=micro,
        precision=precision,
    )
    return dataclasses.replace(config, train=train)


def batch_with_hits(model: Any) -> dict[str, Any]:
    """Return targets of which the model guesses about half; a sixth is ignored, and all of the third sequence."""
    rng = np.random.default_rng(3)
    inputs = rng.integers(0, model.config.vocab_size, (ROWS, LENGTH)).astype(np.int32)
    likeliest = torch.from_numpy(model.logits(inputs)).argmax(-1).numpy().astype(np.int32)
    others = rng.integers(0, model.config.vocab_size, likeliest.shape).astype(np.int32)
    targets = np.where(rng.random(likeliest.shape) < 0.5, likeliest, others)
    targets[rng.random(likeliest.shape) < 1 / 6] = -1
    targets[2] = -100
    return {"inputs": inputs, "targets": np.ascontiguousarray(targets, np.int32), "likeliest": likeliest}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_and_a_validation_count_what_torch_finds_likeliest(family: str, precision: str) -> None:
    config = config_of(family, precision=precision)
    model = mc.Model(config.model, seed=5, precision=precision)
    batch = batch_with_hits(model)
    hits = batch.pop("likeliest") == batch["targets"]
    counted = (batch["targets"] >= 0).sum(1)
    want = float(hits.sum() / counted.sum())
    assert 0.3 < want < 0.8 and model.evaluate(batch)[1:] == (counted.sum(), hits.sum())
    engine = Engine(config, model)
    engine.train_step(0, 0.0, batch)
    found = engine.metrics()
    assert found["accuracy"] == want
    shares = hits.sum(1).astype(np.float32) / np.maximum(1, counted).astype(np.float32)
    assert found[SAMPLE_ACCURACY] == pytest.approx(float(shares.mean(dtype=np.float64)), rel=FLOAT64)


@pytest.mark.parametrize("family", FAMILIES)
def test_micro_batches_and_ranks_count_alike(family: str) -> None:
    whole = rank_runs.train(config_of(family), 1)
    assert 0 <= whole.metrics["accuracy"] < 1
    for micro, world in ((1, 1), (2, 1), (4, 1), (0, 2)):
        assert rank_runs.train(config_of(family, micro=micro), world).metrics == whole.metrics, (micro, world)


def test_a_validation_has_the_mean_over_targets_and_the_mean_over_batches() -> None:
    class Sums:
        def evaluate(self, batch: tuple[float, int, int]) -> tuple[float, int, int]:
            return batch

    batches = [(6.0, 4, 3), (4.0, 1, 0), (0.0, 0, 0)]
    found = evaluate(Sums(), batches, step=1, bytes_per_target=0.0)
    assert found is not None
    assert found.row()["val_accuracy"] == found.val_accuracy == 3 / 5
    assert (found.batch_loss, found.batch_accuracy) == ((6 / 4 + 4) / 2, 3 / 8)
    nothing = evaluate(Sums(), [(0.0, 0, 0)], step=1, bytes_per_target=0.0)
    assert nothing is not None and nothing.row()["val_accuracy"] is None and math.isnan(nothing.val_loss)


def test_a_row_has_the_accuracy_over_targets_alone() -> None:
    metrics = {"accuracy": 0.25, SAMPLE_ACCURACY: 0.5}
    row = StepRecord(1, 8, 2.0, 1e-3, 1.0, 1.0, 0.5, 1.0, metrics=metrics).row()
    assert row["accuracy"] == 0.25 and SAMPLE_ACCURACY not in row
