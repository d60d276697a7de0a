"""The losses of pairs of answers in float64: DPO (Rafailov et al. 2023) and ORPO (Hong et al. 2024)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from reference.numpy_ops import F64, ArrayLike, Ints, f64, log_softmax


class Pairs(NamedTuple):
    """Losses and margins of pairs [P], and gradients of the losses by the log-probabilities of the answers [2 P]."""

    loss: F64
    margin: F64
    by_log_prob: F64


def _log_sigmoid(x: F64) -> F64:
    return np.asarray(-np.logaddexp(0.0, -x))


def log_probs(h: ArrayLike, head: ArrayLike, targets: Ints) -> tuple[F64, F64]:
    """Return the sums of the log-probabilities of targets [B, T], and the numbers of targets; negative = ignored."""
    t = np.asarray(targets)
    each = np.take_along_axis(log_softmax(f64(h) @ f64(head).T), np.maximum(t, 0)[..., None], -1)[..., 0]
    return np.asarray((each * (t >= 0)).sum(-1)), np.asarray((t >= 0).sum(-1).astype(np.float64))


def pair_losses(
    kind: str, beta: float, smoothing: float, log_prob: F64, targets: F64, reference: F64 | None
) -> Pairs:
    """Return the losses of pairs; answers are chosen and rejected by turns, and each has a target."""
    sign = np.tile([1.0, -1.0], log_prob.size // 2)
    if kind == "dpo":
        ratio = log_prob - (0.0 if reference is None else reference)
        m = beta * (ratio[0::2] - ratio[1::2])
        loss = -(1 - smoothing) * _log_sigmoid(m) - smoothing * _log_sigmoid(-m)
        slope = -(1 - smoothing) * np.exp(_log_sigmoid(-m)) + smoothing * np.exp(_log_sigmoid(m))
        return Pairs(loss, m, sign * beta * np.repeat(slope, 2))
    a = log_prob / targets
    odds = a - np.log1p(-np.exp(a))
    z = odds[0::2] - odds[1::2]
    loss = -a[0::2] - beta * _log_sigmoid(z)
    slope = -beta * np.exp(_log_sigmoid(-z))
    by_mean = sign * np.repeat(slope, 2) / -np.expm1(a)
    by_mean[0::2] -= 1
    return Pairs(loss, beta * (a[0::2] - a[1::2]), by_mean / targets)


def gradients(h: ArrayLike, head: ArrayLike, targets: Ints, by_log_prob: F64) -> tuple[F64, F64]:
    """Return (dh, dhead) from the gradients by the log-probabilities of the samples [B]."""
    w, t = f64(head), np.asarray(targets)
    dlogits = -np.exp(log_softmax(f64(h) @ w.T))
    np.put_along_axis(
        dlogits,
        np.maximum(t, 0)[..., None],
        1 + np.take_along_axis(dlogits, np.maximum(t, 0)[..., None], -1),
        -1,
    )
    dlogits *= (t >= 0)[..., None] * by_log_prob[:, None, None]
    return np.asarray(dlogits @ w), np.einsum("btv,btd->vd", dlogits, f64(h))
