"""The loss of a student with a teacher, in float64: docs/maths/distillation.md."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from reference.numpy_ops import F64, Ints, f64, log_softmax


def teacher_loss(
    logits: ArrayLike, targets: Ints, ids: Ints, log_probs: ArrayLike, weight: float
) -> tuple[F64, F64, F64]:
    """Return (mixed loss, KL, gradient of the logits) of rows of logits [N, V].

    targets [N]: negative = ignored. ids, log_probs [N, K]: the tokens that the teacher kept.
    """
    logq, t, kept = log_softmax(f64(logits)), np.asarray(targets), np.asarray(ids)
    rows = np.arange(t.size)
    is_kept = np.zeros(logq.shape, bool)
    is_kept[rows[:, None], kept] = True
    teacher = f64(log_probs)
    p = np.exp(teacher)
    rest = np.maximum(0, 1 - p.sum(-1))
    q = np.exp(logq)
    student_rest = np.where(is_kept, 0, q).sum(-1)
    kl = np.where(p > 0, p * (np.maximum(teacher, -1e300) - np.take_along_axis(logq, kept, -1)), 0).sum(-1)
    kl += np.where(rest > 0, rest * (np.log(np.where(rest > 0, rest, 1)) - np.log(student_rest)), 0)
    slope = q * (p.sum(-1) + rest)[:, None] - np.where(is_kept, 0, q * (rest / student_rest)[:, None])
    slope[rows[:, None], kept] -= p
    one_hot = np.zeros_like(q)
    one_hot[rows, np.maximum(t, 0)] = 1
    gradient = (1 - weight) * (q - one_hot) + weight * slope
    loss = (1 - weight) * -logq[rows, np.maximum(t, 0)] + weight * kl
    counted = t >= 0
    return loss * counted, kl * counted, gradient * counted[:, None]


def agreed(logits: ArrayLike, targets: Ints, ids: Ints, log_probs: ArrayLike) -> Ints:
    """Return for each row whether student and teacher have the same likeliest token; never at an ignored target."""
    likeliest = np.take_along_axis(np.asarray(ids), np.argmax(f64(log_probs), -1)[:, None], -1)[:, 0]
    found: Ints = ((np.argmax(f64(logits), -1) == likeliest) & (np.asarray(targets) >= 0)).astype(np.int32)
    return found


def log_prob_slope(logits: ArrayLike, targets: Ints, ids: Ints, log_probs: ArrayLike, weight: float) -> F64:
    """Return the gradient of the summed loss for the teacher's log-probabilities [N, K]."""
    logq, kept = log_softmax(f64(logits)), np.asarray(ids)
    teacher = f64(log_probs)
    p = np.exp(teacher)
    rest = np.maximum(0, 1 - p.sum(-1))
    is_kept = np.zeros(logq.shape, bool)
    is_kept[np.arange(len(kept))[:, None], kept] = True
    student_rest = np.where(is_kept, 0, np.exp(logq)).sum(-1)
    of_rest = np.where(rest > 0, np.log(np.where(rest > 0, rest, 1)) - np.log(student_rest), -1)
    slope = weight * p * (teacher - np.take_along_axis(logq, kept, -1) - of_rest[:, None])
    return np.asarray(slope * (np.asarray(targets) >= 0)[:, None])
