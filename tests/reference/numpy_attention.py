"""Float64 NumPy attention, forward and backward: whole score matrices, no tiles. Shape letters as in numpy_ops.py."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reference.numpy_ops import F64, Ints, f64


def _visible(
    T_q: int, T_k: int, batch: int, segments: Ints | None, key_mask: Ints | None, window: int
) -> NDArray[np.bool_]:
    """Return the mask [B, T_q, T_k]: causal from the end, within the window, in the same segment, and key_mask[k]."""
    age = (np.arange(T_q) + (T_k - T_q))[:, None] - np.arange(T_k)[None, :]
    see = (age >= 0) & (age < (window or T_k))
    mask: NDArray[np.bool_] = np.broadcast_to(see, (batch, T_q, T_k)).copy()
    if segments is not None:
        seg = np.asarray(segments)
        mask &= seg[:, T_k - T_q :, None] == seg[:, None, :]
    if key_mask is not None:
        mask &= (np.asarray(key_mask) != 0)[:, None, :]
    return mask


def _probabilities(
    q: F64, k: F64, scale: float, segments: Ints | None, key_mask: Ints | None, window: int = 0
) -> tuple[F64, F64]:
    """Return softmax rows [B, H, T_q, T_k] and log-sums [B, H, T_q]; for a row without visible keys, zeros and -inf."""
    B, T_q, H, _ = q.shape
    T_k, G = k.shape[1], k.shape[2]
    k_full = np.repeat(k, H // G, axis=2)
    scores = np.einsum("bqhd,bkhd->bhqk", q, k_full) * scale
    see = _visible(T_q, T_k, B, segments, key_mask, window)[:, None]
    scores = np.where(see, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    e = np.exp(scores - top)
    total = e.sum(-1, keepdims=True)
    p = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    with np.errstate(divide="ignore"):
        log_sum = (np.log(total) + top)[..., 0]
    return p, log_sum


Scores = tuple[str, int, float]  # activation of the scores, divisor (0 = T_k), eps


def _score_weights(
    q: F64, k: F64, scale: float, segments: Ints | None, key_mask: Ints | None, scores: Scores, window: int
) -> tuple[F64, F64, bool]:
    """Return (P, dP/ds with the row's divisor held fixed, True if that divisor depends on the scores)."""
    name, divisor, eps = scores
    if name == "softmax":
        p, _ = _probabilities(q, k, scale, segments, key_mask, window)
        return p, p, True
    s = np.einsum("bqhd,bkhd->bhqk", q, np.repeat(k, q.shape[2] // k.shape[2], axis=2)) * scale
    see = _visible(s.shape[2], k.shape[1], q.shape[0], segments, key_mask, window)[:, None]
    squared = name.endswith("sqrelu")
    value = np.maximum(s, 0) ** 2 if squared else np.where(s > 0, s + 1, np.exp(np.minimum(s, 0)))
    slope = 2 * np.maximum(s, 0) if squared else np.exp(np.minimum(s, 0))
    value, slope = value * see, slope * see
    summed = name.startswith("norm_")
    below = value.sum(-1, keepdims=True) + eps if summed else float(divisor or k.shape[1])
    return value / below, slope / below, summed


def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    scale: float | None = None,
    segments: Ints | None = None,
    key_mask: Ints | None = None,
    scores: Scores = ("softmax", 0, 0.0),
    window: int = 0,
) -> F64:
    """Compute causal grouped-query attention. q [B, T_q, H, d], k and v [B, T_k, G, d] -> [B, T_q, H, d].

    Query head h reads key head h // (H/G). scale defaults to 1/sqrt(d). segments, key_mask [B, T_k]: a query sees key t
    if t is not later, in its segment, and key_mask[t] is not 0. With a window, t must also be the query's position or
    one of the window - 1 before it. T_q < T_k: queries are the last T_q positions.
    """
    q_, k_, v_ = f64(q), f64(k), f64(v)
    s = 1.0 / math.sqrt(q_.shape[-1]) if scale is None else scale
    p, _, _ = _score_weights(q_, k_, s, segments, key_mask, scores, window)
    return np.asarray(np.einsum("bhqk,bkhd->bqhd", p, np.repeat(v_, q_.shape[2] // v_.shape[2], axis=2)))


def attention_log_sums(
    q: ArrayLike,
    k: ArrayLike,
    scale: float | None = None,
    segments: Ints | None = None,
    key_mask: Ints | None = None,
) -> F64:
    """Return log sum exp of the visible scores of each row, [B, H, T_q]; -inf if nothing is visible."""
    q_ = f64(q)
    s = 1.0 / math.sqrt(q_.shape[-1]) if scale is None else scale
    return _probabilities(q_, f64(k), s, segments, key_mask)[1]


def attention_backward(
    dy: ArrayLike,
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    scale: float | None = None,
    segments: Ints | None = None,
    key_mask: Ints | None = None,
    scores: Scores = ("softmax", 0, 0.0),
    window: int = 0,
) -> tuple[F64, F64, F64]:
    """Return (dq [B, T_q, H, d], dk, dv [B, T_k, G, d])."""
    dy_, q_, k_, v_ = f64(dy), f64(q), f64(k), f64(v)
    B, T_k, G, d = k_.shape
    group = q_.shape[2] // G
    s = 1.0 / math.sqrt(d) if scale is None else scale
    p, slope, summed = _score_weights(q_, k_, s, segments, key_mask, scores, window)
    dp = np.einsum("bqhd,bkhd->bhqk", dy_, np.repeat(v_, group, axis=2))
    ds = slope * (dp - (dp * p).sum(-1, keepdims=True) * summed) * s
    dq = np.einsum("bhqk,bkhd->bqhd", ds, np.repeat(k_, group, axis=2))
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q_).reshape(B, T_k, G, group, d).sum(3)
    dv = np.einsum("bhqk,bqhd->bkhd", p, dy_).reshape(B, T_k, G, group, v_.shape[-1]).sum(3)
    return dq, dk, dv
