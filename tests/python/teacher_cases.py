"""Cases of teacher_loss: with and without a bias, ignored targets, and a teacher that keeps nearly everything."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_case import Case, integers, normal
from reference import numpy_ops as ref
from reference import numpy_teacher


def kept_of(shape: tuple[int, ...], vocabulary: int, kept: int, sharpness: float = 1.0) -> tuple[Any, Any]:
    """Return the ids (ascending) and the float32 log-probabilities of the likeliest tokens of random logits."""
    log_probs = ref.log_softmax(sharpness * normal(*shape, vocabulary))
    ids = np.sort(np.argsort(-log_probs, -1, kind="stable")[..., :kept], -1).astype(np.int32)
    return ids, np.take_along_axis(log_probs, ids, -1).astype(np.float32)


def teacher_case(kept: int, weight: float, *, biased: bool = False, sharpness: float = 1.0) -> Case:
    """Return a loss of 2 x 9 positions over 37 tokens."""
    h, head, bias = normal(2, 9, 16), normal(37, 16), normal(37) if biased else None
    targets = integers(37, 2, 9)
    targets[0, 3:5] = -100
    ids, log_probs = kept_of((2, 9), 37, kept, sharpness)

    def logits(h: Any, head: Any, b: Any) -> Any:
        return ref.f64(h).reshape(-1, 16) @ ref.f64(head).T + (0 if b is None else b)

    def flat(t: Any, i: Any, p: Any) -> tuple[Any, Any, Any]:
        return t.reshape(-1), i.reshape(-1, kept), p.reshape(-1, kept)

    def forward(h: Any, head: Any, t: Any, i: Any, p: Any, b: Any) -> Any:
        z = logits(h, head, b)
        loss, kl, _ = numpy_teacher.teacher_loss(z, *flat(t, i, p), weight)
        hits = ((z.argmax(-1).reshape(t.shape) == t) & (t >= 0)).sum(-1)
        guessed = np.stack([hits, hits / np.maximum(1, (t >= 0).sum(-1))], -1)
        agreed = numpy_teacher.agreed(z, *flat(t, i, p)).reshape(t.shape).sum(-1)
        teacher = np.stack([kl.reshape(t.shape).sum(-1), agreed], -1)
        return np.array([loss.sum()]), np.array([float((t >= 0).sum())]), guessed, teacher

    def backward(dloss: Any, h: Any, head: Any, t: Any, i: Any, p: Any, b: Any) -> Any:
        dlogits = numpy_teacher.teacher_loss(logits(h, head, b), *flat(t, i, p), weight)[2]
        of_bias = None if b is None else dlogits.sum(0)
        slope = numpy_teacher.log_prob_slope(logits(h, head, b), *flat(t, i, p), weight).reshape(p.shape)
        return (dlogits @ head).reshape(h.shape), dlogits.T @ h.reshape(-1, 16), None, None, slope, of_bias

    return Case(
        "teacher_loss", [h, head, targets, ids, log_probs, bias], {"weight": weight}, forward, backward
    )


def teacher_cases() -> list[Case]:
    """Return all cases."""
    return [
        teacher_case(5, 0.5),
        teacher_case(1, 0.25, biased=True),
        teacher_case(36, 1.0),
        teacher_case(4, 0.7, sharpness=20.0),
    ]
