"""Plain float64 NumPy versions of every op, forward and backward: the oracle of the op tests.

This module has the ops that all models use. The others are in numpy_attention.py, numpy_slots.py (token-parameter
attention), numpy_moe.py and numpy_updates.py (optimizers).

Written from the formulas, without any code of mudd_core, and slow on purpose: no tiles, no fused passes, whole score
matrices. Every function accepts arrays of any float type and computes and returns float64.

Shape letters: B batch, T tokens, H query heads, G key/value heads (H % G == 0), d head width, D model width, N rows, V
vocabulary, K inner width. `*` is any number of leading axes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

F64 = NDArray[np.float64]
Ints = NDArray[Any]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def f64(x: ArrayLike) -> F64:
    return np.asarray(x, dtype=np.float64)


# ---------------------------------------------------------------- norms


def rms_norm(x: ArrayLike, gain: ArrayLike, eps: float = 1e-6) -> F64:
    """Return x / sqrt(mean(x^2) + eps) * gain over the last axis. x [*, D], gain [D]."""
    x_, gain_ = f64(x), f64(gain)
    return np.asarray(x_ / np.sqrt((x_ * x_).mean(-1, keepdims=True) + eps) * gain_)


def rms_norm_backward(dy: ArrayLike, x: ArrayLike, gain: ArrayLike, eps: float = 1e-6) -> tuple[F64, F64]:
    """Return (dx [*, D], dgain [D])."""
    dy_, x_, gain_ = f64(dy), f64(x), f64(gain)
    r = 1.0 / np.sqrt((x_ * x_).mean(-1, keepdims=True) + eps)
    n = x_ * r
    dn = dy_ * gain_
    dx = r * (dn - n * (dn * n).mean(-1, keepdims=True))
    return dx, _sum_rows(dy_ * n)


def layer_norm(x: ArrayLike, gain: ArrayLike, bias: ArrayLike, eps: float = 1e-5) -> F64:
    """Return (x - mean) / sqrt(var + eps) * gain + bias, var with 1/D. x [*, D], gain and bias [D]."""
    x_ = f64(x)
    c = x_ - x_.mean(-1, keepdims=True)
    return np.asarray(c / np.sqrt((c * c).mean(-1, keepdims=True) + eps) * f64(gain) + f64(bias))


def layer_norm_backward(
    dy: ArrayLike, x: ArrayLike, gain: ArrayLike, eps: float = 1e-5
) -> tuple[F64, F64, F64]:
    """Return (dx [*, D], dgain [D], dbias [D])."""
    dy_, x_ = f64(dy), f64(x)
    c = x_ - x_.mean(-1, keepdims=True)
    r = 1.0 / np.sqrt((c * c).mean(-1, keepdims=True) + eps)
    n = c * r
    dn = dy_ * f64(gain)
    dx = r * (dn - dn.mean(-1, keepdims=True) - n * (dn * n).mean(-1, keepdims=True))
    return dx, _sum_rows(dy_ * n), _sum_rows(dy_)


def _sum_rows(x: F64) -> F64:
    return np.asarray(x.reshape(-1, x.shape[-1]).sum(0))


# ---------------------------------------------------------------- rope


Scaling = tuple[str, float, float, float, int]  # kind, factor, low and high frequency factor, original length


def _scaled(theta: F64, scaling: Scaling) -> F64:
    """Return frequencies with linear scaling, or with llama3 scaling as in transformers."""
    kind, factor, low, high, original = scaling
    if kind == "linear":
        return theta / factor
    wavelength = 2 * np.pi / theta
    smooth = (original / wavelength - low) / (high - low)
    between = (1 - smooth) * theta / factor + smooth * theta
    slow = np.where(wavelength > original / low, theta / factor, between)
    return np.where(wavelength < original / high, theta, slow)


def _rope_angles(positions: Ints, pairs: int, base: float, scaling: Scaling | None) -> tuple[F64, F64]:
    """Return cos and sin [B, T, 1, pairs] of positions * base^(-i / pairs), or of scaled frequencies."""
    theta = base ** (-np.arange(pairs, dtype=np.float64) / pairs)
    theta = theta if scaling is None else _scaled(theta, scaling)
    angle = f64(positions)[..., None, None] * theta
    return np.cos(angle), np.sin(angle)


def rope(
    x: ArrayLike,
    positions: Ints | None = None,
    base: float = 10000.0,
    rotary: int | None = None,
    scaling: Scaling | None = None,
) -> F64:
    """Rotate by position in the half layout: the two halves of the first `rotary` dims of a head form the pairs.

    x [B, T, H, d]; positions [B, T], default 0..T-1; out = (x1 cos - x2 sin, x2 cos + x1 sin); the other dims are
    copied.
    """
    x_ = f64(x)
    pos = np.arange(x_.shape[1])[None, :] if positions is None else np.asarray(positions)
    r = x_.shape[-1] if rotary is None else rotary
    cos, sin = _rope_angles(pos, r // 2, base, scaling)
    x1, x2, rest = x_[..., : r // 2], x_[..., r // 2 : r], x_[..., r:]
    return np.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin, rest], -1)


def rope_backward(
    dy: ArrayLike,
    positions: Ints | None = None,
    base: float = 10000.0,
    rotary: int | None = None,
    scaling: Scaling | None = None,
) -> F64:
    """Return dx [B, T, H, d]: the rotation is orthogonal, so its gradient is the rotation by the negative angle."""
    dy_ = f64(dy)
    pos = np.arange(dy_.shape[1])[None, :] if positions is None else np.asarray(positions)
    return rope(dy_, -pos, base, rotary, scaling)


# ---------------------------------------------------------------- activations


def sigmoid(x: ArrayLike) -> F64:
    """Return 1 / (1 + exp(-x)) without overflow."""
    x_ = f64(x)
    e = np.exp(-np.abs(x_))
    return np.where(x_ >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


def silu(x: ArrayLike) -> F64:
    """Return x * sigmoid(x)."""
    return np.asarray(f64(x) * sigmoid(x))


def swiglu(gate: ArrayLike, up: ArrayLike) -> F64:
    """Return silu(gate) * up, same shapes."""
    return np.asarray(silu(gate) * f64(up))


def swiglu_backward(dy: ArrayLike, gate: ArrayLike, up: ArrayLike) -> tuple[F64, F64]:
    """Return (dgate, dup)."""
    dy_, g, u = f64(dy), f64(gate), f64(up)
    s = sigmoid(g)
    return dy_ * u * s * (1.0 + g * (1.0 - s)), dy_ * g * s


_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def gelu(x: ArrayLike, approximate: str = "tanh") -> F64:
    """Return GELU with approximate = "tanh" (gelu_new of GPT-2) or "erf" (exact)."""
    x_ = f64(x)
    if approximate == "tanh":
        return 0.5 * x_ * (1.0 + np.tanh(_SQRT_2_OVER_PI * (x_ + 0.044715 * x_**3)))
    return np.asarray(0.5 * x_ * (1.0 + _erf(x_ / math.sqrt(2.0))))


def gelu_backward(dy: ArrayLike, x: ArrayLike, approximate: str = "tanh") -> F64:
    """Return dx, in the same shape."""
    dy_, x_ = f64(dy), f64(x)
    if approximate == "tanh":
        t = np.tanh(_SQRT_2_OVER_PI * (x_ + 0.044715 * x_**3))
        dt = (1.0 - t * t) * _SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044715 * x_ * x_)
        return dy_ * (0.5 * (1.0 + t) + 0.5 * x_ * dt)
    cdf = 0.5 * (1.0 + _erf(x_ / math.sqrt(2.0)))
    pdf = np.exp(-0.5 * x_ * x_) / math.sqrt(2.0 * math.pi)
    return np.asarray(dy_ * (cdf + x_ * pdf))


# ---------------------------------------------------------------- linear, embedding


def linear(x: ArrayLike, w: ArrayLike, b: ArrayLike | None = None, residual: ArrayLike | None = None) -> F64:
    """Return x W + b + residual. x [*, in], w [in, out], b [out], residual [*, out]."""
    y = f64(x) @ f64(w)
    if b is not None:
        y = y + f64(b)
    return y if residual is None else y + f64(residual)


def linear_backward(dy: ArrayLike, x: ArrayLike, w: ArrayLike) -> tuple[F64, F64, F64]:
    """Return (dx [*, in], dw [in, out], db [out]); the gradient of a residual is dy itself."""
    dy_, x_, w_ = f64(dy), f64(x), f64(w)
    dw = x_.reshape(-1, x_.shape[-1]).T @ dy_.reshape(-1, dy_.shape[-1])
    return dy_ @ w_.T, dw, _sum_rows(dy_)


def embedding(ids: Ints, table: ArrayLike) -> F64:
    """Return the rows of table [V, D] for ids [*]: [*, D]."""
    return np.asarray(f64(table)[np.asarray(ids)])


def embedding_backward(dy: ArrayLike, ids: Ints, vocab: int) -> F64:
    """Return dtable [V, D]: each row of dy [*, D] is added to the row of its id."""
    dy_ = f64(dy)
    dtable = np.zeros((vocab, dy_.shape[-1]))
    np.add.at(dtable, np.asarray(ids).reshape(-1), dy_.reshape(-1, dy_.shape[-1]))
    return dtable


# ---------------------------------------------------------------- loss


class LossSums(NamedTuple):
    """The summed losses in nats and the number of counted targets; divide to get the mean."""

    loss: float
    targets: int


def log_softmax(logits: ArrayLike) -> F64:
    """Return the log-softmax over the last axis."""
    x = f64(logits)
    x = x - x.max(-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


def cross_entropy(hidden: ArrayLike, head: ArrayLike, targets: Ints) -> LossSums:
    """Return the loss of logits = hidden head^T. hidden [N, D], head [V, D], targets [N], negative = ignored."""
    logp = log_softmax(f64(hidden) @ f64(head).T)
    t = np.asarray(targets)
    rows = np.nonzero(t >= 0)[0]
    return LossSums(float(-logp[rows, t[rows]].sum()), int(rows.size))


def guessed(hidden: ArrayLike, head: ArrayLike, targets: Ints) -> F64:
    """Return [B, 2] for targets [B, T]: how many have the largest logit (the first of ties), and the fraction."""
    t = np.asarray(targets)
    hits = (np.argmax(f64(hidden) @ f64(head).T, -1).reshape(t.shape) == t).sum(-1)
    return np.stack([hits, hits / np.maximum(1, (t >= 0).sum(-1))], -1)


def cross_entropy_backward(
    hidden: ArrayLike, head: ArrayLike, targets: Ints, scale: float = 1.0
) -> tuple[F64, F64]:
    """Return the gradients (dhidden [N, D], dhead [V, D]) of scale * summed loss."""
    h, w, t = f64(hidden), f64(head), np.asarray(targets)
    dlogits = np.exp(log_softmax(h @ w.T))
    rows = np.nonzero(t >= 0)[0]
    dlogits[rows, t[rows]] -= 1.0
    dlogits[t < 0] = 0.0
    dlogits *= scale
    return dlogits @ w, dlogits.T @ h
