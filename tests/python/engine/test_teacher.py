"""A model with a teacher: loss and gradients equal PyTorch in float64, in both executors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from both_executors import in_both_executors
from mudd_core.data.rows import TEACHER_PARTS
from mudd_core.engine.teaching import Teaching
from mudd_core.tools.teach.reading import likeliest
from small_models import CASES

B, T, K, WEIGHT = 4, 12, 6, 0.7


def model_and_batch() -> tuple[mc.Model, dict[str, Any]]:
    """Return a small model with a teacher, and a batch with the teacher's tokens; a quarter of targets is ignored."""
    config = CASES["llama_gqa"][0]
    model, teacher = mc.Model(config, seed=1), mc.Model(config, seed=2)
    model.teaching = Teaching(K, WEIGHT)
    rng = np.random.default_rng(0)
    batch: dict[str, Any] = {
        name: rng.integers(config.vocab_size, size=(B, T), dtype=np.int32) for name in ("inputs", "targets")
    }
    batch["targets"][rng.random((B, T)) < 0.25] = -1
    found = likeliest(
        4 * teacher.logits(batch["inputs"]).reshape(B * T, -1), np.arange(B * T), K, config.vocab_size
    )
    for name, array in zip(TEACHER_PARTS, found, strict=True):
        batch[name] = array.reshape(B, T, K)
    return model, batch


def torch_loss(logits: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
    """Return the mean mixed loss of logits [B, T, V] in float64."""
    ids, log_p = (torch.tensor(batch[name]) for name in TEACHER_PARTS)
    targets, log_q = torch.tensor(batch["targets"]).long(), logits.log_softmax(-1)
    kept = torch.zeros_like(log_q, dtype=torch.bool).scatter(-1, ids.long(), True)
    log_p = log_p.double()
    rest = 1 - log_p.exp().sum(-1)
    log_rest = log_q.masked_fill(kept, -torch.inf).logsumexp(-1)
    kl = (log_p.exp() * (log_p - log_q.gather(-1, ids.long()))).sum(-1) + rest * (rest.log() - log_rest)
    truth = -log_q.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return ((1 - WEIGHT) * truth + WEIGHT * kl)[targets >= 0].mean()


def test_loss_and_gradients_equal_torch_in_both_executors() -> None:
    model, batch = model_and_batch()
    loss, gradients = in_both_executors(model, batch)
    ids = {name: batch[name] for name in ("inputs", "targets")}
    exact = torch.tensor(model.logits(ids).astype(np.float64), requires_grad=True)
    want = torch_loss(exact, batch)
    # The logits are float32; the loss is summed in float64.
    assert abs(loss - want.item()) <= 1e-6 * max(1.0, abs(want.item()))
    # The slope along a random direction of the head, by the gradient of the logits.
    want.backward()
    assert exact.grad is not None
    state = model.state_dict()
    name = next(name for name in gradients if state[name].shape == (61, 36) and "embed" not in name)
    direction = np.random.default_rng(1).standard_normal((61, 36)).astype(np.float32)
    model.load_state_dict({**state, name: state[name] + direction})
    moved = model.logits(ids).astype(np.float64)
    slope = float(
        (exact.grad.numpy() * (moved - exact.detach().numpy())).sum()
    )  # logits are linear in the head
    gradient = gradients[name].astype(np.float64)
    # The gradient and both logits are float32.
    assert abs(float((gradient * direction).sum()) - slope) <= 1e-5 * np.linalg.norm(gradient) * 36


def test_an_evaluation_has_the_cross_entropy_and_the_divergence_apart() -> None:
    model, batch = model_and_batch()
    ids = {name: batch[name] for name in ("inputs", "targets")}
    sums = model.evaluate_all(batch)
    nats, targets, guessed, divergence, agreed = sums[:5]
    assert divergence is not None and sums.margins is None
    assert (nats, targets, guessed) == model.evaluate(batch)
    # The graph without a teacher adds the exponentials of a row in another order.
    assert model.evaluate(ids) == (pytest.approx(nats, rel=1e-7), targets, guessed)
    loss = model.loss_and_gradients(batch)[0]
    # The divergence of a sample is rounded to float32.
    assert abs(loss - ((1 - WEIGHT) * nats + WEIGHT * divergence) / targets) <= 1e-6 * loss
    best = model.logits(ids).argmax(-1)
    teacher = np.take_along_axis(batch[TEACHER_PARTS[0]], batch[TEACHER_PARTS[1]].argmax(-1)[..., None], -1)[
        ..., 0
    ]
    assert agreed == int(((best == teacher) & (batch["targets"] >= 0)).sum())
    model.evaluated_at_once = 1  # in pieces: the same bits
    assert model.evaluate_all(batch) == sums


def test_arrays_of_another_teacher_are_refused() -> None:
    model, batch = model_and_batch()
    model.teaching = Teaching(K + 1, WEIGHT)
    with pytest.raises(ValueError, match=r"\[model\] teacher_ids: expected int32 \[4, 12, 7\]"):
        model.loss_and_gradients(batch)
    model.teaching = None
    with pytest.raises(ValueError, match=r"\[model\] batch: expected inputs, targets"):
        model.loss_and_gradients(batch)
