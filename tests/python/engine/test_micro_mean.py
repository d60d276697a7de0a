"""loss.normalize=micro_mean: every micro-batch has the same weight, for any number of counted targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mudd_core.config import Config, GPT2Config, LossConfig, MixtralConfig, OptimConfig, TrainConfig
from mudd_core.engine.model import Model
from mudd_core.run.loop.trainer import Trainer
from near import REORDERED

MODELS = {
    "dense": GPT2Config(vocab_size=13, max_seq_len=8, d_model=8, n_layer=1, n_head=2, d_ff=16),
    "experts": MixtralConfig(
        vocab_size=13,
        max_seq_len=8,
        d_model=8,
        n_layer=1,
        n_head=2,
        d_ff=8,
        n_expert=2,
        top_k=1,
        aux_coef=0.5,
    ),
}


def batch(counted: tuple[int, ...]) -> dict[str, Any]:
    """Return one sequence for each number of counted targets."""
    draw = np.random.default_rng(3)
    inputs, targets = (draw.integers(0, 13, (len(counted), 8)).astype(np.int32) for _ in range(2))
    for row, count in zip(targets, counted, strict=True):
        row[count:] = -100
    return {"inputs": inputs, "targets": targets}


def stepped(
    model: Any, rows: dict[str, Any], micro: int, normalize: str
) -> tuple[float, dict[str, np.ndarray]]:
    """Return the loss of a step, and the change that it subtracts from each weight."""
    size = len(rows["inputs"])
    config = Config(
        model=model,
        train=TrainConfig(steps=5, batch_size=size, seq_len=8, logical_shards=size, micro_batch_size=micro),
        optim=OptimConfig(name="sgd", lr=1.0, momentum=0.0, weight_decay=0.0, clip=0.0, schedule="constant"),
        loss=LossConfig(normalize=normalize),
    )
    trainer = Trainer(config, model=Model(model, seed=1))
    before = {name: np.array(value) for name, value in trainer.model.parameters.items()}
    loss = trainer.step(rows).loss
    return loss, {name: before[name] - np.array(trainer.model.parameters[name]) for name in before}


@pytest.mark.parametrize("name", MODELS)
def test_a_step_takes_the_mean_of_the_means(name: str) -> None:
    model, rows = MODELS[name], batch((8, 8, 3, 1))
    loss, change = stepped(model, rows, 2, "micro_mean")
    halves = [
        stepped(model, {key: value[part] for key, value in rows.items()}, 0, "valid")
        for part in (slice(0, 2), slice(2, 4))
    ]
    assert loss == pytest.approx((halves[0][0] + halves[1][0]) / 2, rel=REORDERED)
    for key, value in change.items():
        wanted = (halves[0][1][key] + halves[1][1][key]) / 2
        # float32 on both sides, with the sums in another order; AdamW amplifies it for small gradients.
        np.testing.assert_allclose(value, wanted, rtol=2e-4, atol=2e-6, err_msg=key)
    valid, _ = stepped(model, rows, 2, "valid")
    assert abs(loss - valid) > 1e-3


@pytest.mark.parametrize("name", MODELS)
def test_whole_micro_batches_give_the_bits_of_valid(name: str) -> None:
    rows = batch((8, 8, 8, 8))
    one, other = (stepped(MODELS[name], rows, 2, normalize) for normalize in ("micro_mean", "valid"))
    assert one[0] == other[0]
    for key, value in one[1].items():
        np.testing.assert_array_equal(value, other[1][key], err_msg=key)
