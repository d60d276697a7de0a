"""Plain float64 NumPy versions of every op, forward and backward: the oracle of the op tests.

Written from the formulas, without a line of mudd_core, and slow on purpose: no tiles, no fused passes, whole
score matrices. Every function takes arrays of any float type and computes and returns float64.

Shape letters: B batch, T tokens, H query heads, G key/value heads (H % G == 0), d head width, D model width,
N rows, V vocabulary, K inner width. `*` stands for any leading axes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

F64 = NDArray[np.float64]
Ints = NDArray[Any]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _f64(x: ArrayLike) -> F64:
    return np.asarray(x, dtype=np.float64)


# ---------------------------------------------------------------- norms


def rms_norm(x: ArrayLike, gain: ArrayLike, eps: float = 1e-6) -> F64:
    """y = x / sqrt(mean(x^2) + eps) * gain over the last axis. x [*, D], gain [D]."""
    x_, gain_ = _f64(x), _f64(gain)
    return np.asarray(x_ / np.sqrt((x_ * x_).mean(-1, keepdims=True) + eps) * gain_)


def rms_norm_backward(dy: ArrayLike, x: ArrayLike, gain: ArrayLike, eps: float = 1e-6) -> tuple[F64, F64]:
    """Returns (dx [*, D], dgain [D])."""
    dy_, x_, gain_ = _f64(dy), _f64(x), _f64(gain)
    r = 1.0 / np.sqrt((x_ * x_).mean(-1, keepdims=True) + eps)
    n = x_ * r
    dn = dy_ * gain_
    dx = r * (dn - n * (dn * n).mean(-1, keepdims=True))
    return dx, _sum_rows(dy_ * n)


def layer_norm(x: ArrayLike, gain: ArrayLike, bias: ArrayLike, eps: float = 1e-5) -> F64:
    """y = (x - mean) / sqrt(var + eps) * gain + bias, var with 1/D. x [*, D], gain and bias [D]."""
    x_ = _f64(x)
    c = x_ - x_.mean(-1, keepdims=True)
    return np.asarray(c / np.sqrt((c * c).mean(-1, keepdims=True) + eps) * _f64(gain) + _f64(bias))


def layer_norm_backward(
    dy: ArrayLike, x: ArrayLike, gain: ArrayLike, eps: float = 1e-5
) -> tuple[F64, F64, F64]:
    """Returns (dx [*, D], dgain [D], dbias [D])."""
    dy_, x_ = _f64(dy), _f64(x)
    c = x_ - x_.mean(-1, keepdims=True)
    r = 1.0 / np.sqrt((c * c).mean(-1, keepdims=True) + eps)
    n = c * r
    dn = dy_ * _f64(gain)
    dx = r * (dn - dn.mean(-1, keepdims=True) - n * (dn * n).mean(-1, keepdims=True))
    return dx, _sum_rows(dy_ * n), _sum_rows(dy_)


def _sum_rows(x: F64) -> F64:
    return np.asarray(x.reshape(-1, x.shape[-1]).sum(0))


# ---------------------------------------------------------------- rope


def _rope_angles(positions: Ints, pairs: int, base: float) -> tuple[F64, F64]:
    """cos and sin [B, T, 1, pairs] of positions * base^(-i / pairs)."""
    theta = base ** (-np.arange(pairs, dtype=np.float64) / pairs)
    angle = _f64(positions)[..., None, None] * theta
    return np.cos(angle), np.sin(angle)


def rope(
    x: ArrayLike, positions: Ints | None = None, base: float = 10000.0, rotary: int | None = None
) -> F64:
    """Rotary positions, half layout: the two halves of the first `rotary` dims of a head form the pairs.

    x [B, T, H, d]; positions [B, T], default 0..T-1; out = (x1 cos - x2 sin, x2 cos + x1 sin), rest as it is.
    """
    x_ = _f64(x)
    pos = np.arange(x_.shape[1])[None, :] if positions is None else np.asarray(positions)
    r = x_.shape[-1] if rotary is None else rotary
    cos, sin = _rope_angles(pos, r // 2, base)
    x1, x2, rest = x_[..., : r // 2], x_[..., r // 2 : r], x_[..., r:]
    return np.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin, rest], -1)


def rope_backward(
    dy: ArrayLike, positions: Ints | None = None, base: float = 10000.0, rotary: int | None = None
) -> F64:
    """dx [B, T, H, d]: the rotation is orthogonal, so its gradient is the rotation by the negative angle."""
    dy_ = _f64(dy)
    pos = np.arange(dy_.shape[1])[None, :] if positions is None else np.asarray(positions)
    return rope(dy_, -pos, base, rotary)


# ---------------------------------------------------------------- activations


def sigmoid(x: ArrayLike) -> F64:
    """1 / (1 + exp(-x)) without overflow."""
    x_ = _f64(x)
    e = np.exp(-np.abs(x_))
    return np.where(x_ >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


def silu(x: ArrayLike) -> F64:
    """x * sigmoid(x)."""
    return np.asarray(_f64(x) * sigmoid(x))


def swiglu(gate: ArrayLike, up: ArrayLike) -> F64:
    """silu(gate) * up, same shapes."""
    return np.asarray(silu(gate) * _f64(up))


def swiglu_backward(dy: ArrayLike, gate: ArrayLike, up: ArrayLike) -> tuple[F64, F64]:
    """Returns (dgate, dup)."""
    dy_, g, u = _f64(dy), _f64(gate), _f64(up)
    s = sigmoid(g)
    return dy_ * u * s * (1.0 + g * (1.0 - s)), dy_ * g * s


_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def gelu(x: ArrayLike, approximate: str = "tanh") -> F64:
    """approximate = "tanh" (gelu_new of GPT-2) or "erf" (exact)."""
    x_ = _f64(x)
    if approximate == "tanh":
        return 0.5 * x_ * (1.0 + np.tanh(_SQRT_2_OVER_PI * (x_ + 0.044715 * x_**3)))
    return np.asarray(0.5 * x_ * (1.0 + _erf(x_ / math.sqrt(2.0))))


def gelu_backward(dy: ArrayLike, x: ArrayLike, approximate: str = "tanh") -> F64:
    """dx, same shape."""
    dy_, x_ = _f64(dy), _f64(x)
    if approximate == "tanh":
        t = np.tanh(_SQRT_2_OVER_PI * (x_ + 0.044715 * x_**3))
        dt = (1.0 - t * t) * _SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044715 * x_ * x_)
        return dy_ * (0.5 * (1.0 + t) + 0.5 * x_ * dt)
    cdf = 0.5 * (1.0 + _erf(x_ / math.sqrt(2.0)))
    pdf = np.exp(-0.5 * x_ * x_) / math.sqrt(2.0 * math.pi)
    return np.asarray(dy_ * (cdf + x_ * pdf))


# ---------------------------------------------------------------- linear, embedding


def linear(x: ArrayLike, w: ArrayLike, b: ArrayLike | None = None, residual: ArrayLike | None = None) -> F64:
    """x W + b + residual. x [*, in], w [in, out], b [out], residual [*, out]."""
    y = _f64(x) @ _f64(w)
    if b is not None:
        y = y + _f64(b)
    return y if residual is None else y + _f64(residual)


def linear_backward(dy: ArrayLike, x: ArrayLike, w: ArrayLike) -> tuple[F64, F64, F64]:
    """Returns (dx [*, in], dw [in, out], db [out]); the gradient of a residual is dy itself."""
    dy_, x_, w_ = _f64(dy), _f64(x), _f64(w)
    dw = x_.reshape(-1, x_.shape[-1]).T @ dy_.reshape(-1, dy_.shape[-1])
    return dy_ @ w_.T, dw, _sum_rows(dy_)


class Slots(NamedTuple):
    """Options of token-parameter attention (spec/tokenformer.md section 1)."""

    norm: str = "l2_norm_gelu"
    gelu: str = "tanh"  # or erf
    eps: float = 1e-5
    zoom: float = 0.0  # 0: the number of tokens
    scale: float = 1.0


_SLOTS = Slots()


def pattention_theta(a: ArrayLike, options: Slots) -> F64:
    """Theta of rows of scores [R, n]; a row of zero norm gives zeros."""
    a = _f64(a)
    n = a.shape[-1]
    tau = np.sqrt(options.zoom or n)
    if options.norm == "softmax":
        e = np.exp(a - a.max(-1, keepdims=True))
        return n * e / e.sum(-1, keepdims=True)
    u = a if options.norm in ("l2_norm_gelu", "l2_norm") else gelu(a, options.gelu)
    if options.norm == "gelu":
        return u
    if options.norm == "gelu_layer_norm":
        return (u - u.mean(-1, keepdims=True)) / np.sqrt(u.var(-1, keepdims=True) + options.eps)
    norm = np.sqrt((u * u).sum(-1, keepdims=True))
    z = np.divide(tau * u, norm + options.eps, out=np.zeros_like(u), where=norm > 0)
    return gelu(z, options.gelu) if options.norm == "l2_norm_gelu" else z


def pattention_theta_backward(ds: ArrayLike, a: ArrayLike, options: Slots) -> F64:
    """Gradient of the scores; zero for a row of zero norm."""
    a, ds = _f64(a), _f64(ds)
    if options.norm == "softmax":
        s = pattention_theta(a, options)
        return s * (ds - (ds * s).sum(-1, keepdims=True) / a.shape[-1])
    if options.norm == "gelu":
        return gelu_backward(ds, a, options.gelu)
    u = a if options.norm in ("l2_norm_gelu", "l2_norm") else gelu(a, options.gelu)
    if options.norm == "gelu_layer_norm":
        s = pattention_theta(a, options)
        centred = ds - ds.mean(-1, keepdims=True) - s * (ds * s).mean(-1, keepdims=True)
        return gelu_backward(centred / np.sqrt(u.var(-1, keepdims=True) + options.eps), a, options.gelu)
    norm = np.sqrt((u * u).sum(-1, keepdims=True))
    seen = norm > 0
    over = np.divide(
        np.sqrt(options.zoom or a.shape[-1]), norm + options.eps, out=np.zeros_like(norm), where=seen
    )
    dz = gelu_backward(ds, over * u, options.gelu) if options.norm == "l2_norm_gelu" else ds
    along = (dz * u).sum(-1, keepdims=True)
    du = over * (dz - np.divide(u * along, norm * (norm + options.eps), out=np.zeros_like(u), where=seen))
    return gelu_backward(du, a, options.gelu) if options.norm == "gelu_l2_norm" else du


def pattention(
    x: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    key_bias: ArrayLike | None = None,
    value_bias: ArrayLike | None = None,
    options: Slots = _SLOTS,
) -> F64:
    """y = scale Theta(x key^T + key_bias) value + value_bias. x [R, D], key [n, D], value [n, D2]."""
    a = linear(x, _f64(key).T, key_bias)
    return linear(options.scale * pattention_theta(a, options), value, value_bias)


def pattention_backward(
    dy: ArrayLike,
    x: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    key_bias: ArrayLike | None = None,
    options: Slots = _SLOTS,
) -> tuple[F64, F64, F64, F64, F64]:
    """Gradients (dx, dkey, dvalue, dkey_bias, dvalue_bias)."""
    a = linear(x, _f64(key).T, key_bias)
    ds, dvalue, dvalue_bias = linear_backward(dy, options.scale * pattention_theta(a, options), value)
    da = pattention_theta_backward(options.scale * ds, a, options)
    dx, dkey, dkey_bias = linear_backward(da, x, _f64(key).T)
    return dx, dkey.T, dvalue, dkey_bias, dvalue_bias


def embedding(ids: Ints, table: ArrayLike) -> F64:
    """Rows of table [V, D] by ids [*]: [*, D]."""
    return np.asarray(_f64(table)[np.asarray(ids)])


def embedding_backward(dy: ArrayLike, ids: Ints, vocab: int) -> F64:
    """dtable [V, D]: rows of dy [*, D] added where their id points."""
    dy_ = _f64(dy)
    dtable = np.zeros((vocab, dy_.shape[-1]))
    np.add.at(dtable, np.asarray(ids).reshape(-1), dy_.reshape(-1, dy_.shape[-1]))
    return dtable


# ---------------------------------------------------------------- attention


def _visible(
    T_q: int, T_k: int, batch: int, segments: Ints | None, key_mask: Ints | None
) -> NDArray[np.bool_]:
    """[B, T_q, T_k]: causal, counted from the end when T_q < T_k, and same segment and key_mask[k]."""
    see = np.arange(T_k)[None, :] <= (np.arange(T_q) + (T_k - T_q))[:, None]
    mask: NDArray[np.bool_] = np.broadcast_to(see, (batch, T_q, T_k)).copy()
    if segments is not None:
        seg = np.asarray(segments)
        mask &= seg[:, T_k - T_q :, None] == seg[:, None, :]
    if key_mask is not None:
        mask &= (np.asarray(key_mask) != 0)[:, None, :]
    return mask


def _probabilities(
    q: F64, k: F64, scale: float, segments: Ints | None, key_mask: Ints | None
) -> tuple[F64, F64]:
    """Softmax rows [B, H, T_q, T_k] and log-sums [B, H, T_q]; a row that sees nothing: zeros and -inf."""
    B, T_q, H, _ = q.shape
    T_k, G = k.shape[1], k.shape[2]
    k_full = np.repeat(k, H // G, axis=2)
    scores = np.einsum("bqhd,bkhd->bhqk", q, k_full) * scale
    see = _visible(T_q, T_k, B, segments, key_mask)[:, None]
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
    q: F64, k: F64, scale: float, segments: Ints | None, key_mask: Ints | None, scores: Scores
) -> tuple[F64, F64, bool]:
    """(P, dP/ds with the row's divisor held fixed, does that divisor depend on the scores)."""
    name, divisor, eps = scores
    if name == "softmax":
        p, _ = _probabilities(q, k, scale, segments, key_mask)
        return p, p, True
    s = np.einsum("bqhd,bkhd->bhqk", q, np.repeat(k, q.shape[2] // k.shape[2], axis=2)) * scale
    see = _visible(s.shape[2], k.shape[1], q.shape[0], segments, key_mask)[:, None]
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
) -> F64:
    """Causal grouped-query attention. q [B, T_q, H, d], k and v [B, T_k, G, d] -> [B, T_q, H, d].

    Query head h reads key head h // (H/G). scale defaults to 1/sqrt(d). segments, key_mask [B, T_k]: a query
    sees key t if t is not later, in its segment, and key_mask[t] is not 0. T_q < T_k: queries are the last
    T_q positions.
    """
    q_, k_, v_ = _f64(q), _f64(k), _f64(v)
    s = 1.0 / math.sqrt(q_.shape[-1]) if scale is None else scale
    p, _, _ = _score_weights(q_, k_, s, segments, key_mask, scores)
    return np.asarray(np.einsum("bhqk,bkhd->bqhd", p, np.repeat(v_, q_.shape[2] // v_.shape[2], axis=2)))


def attention_log_sums(
    q: ArrayLike,
    k: ArrayLike,
    scale: float | None = None,
    segments: Ints | None = None,
    key_mask: Ints | None = None,
) -> F64:
    """log sum exp of the visible scores of each row, [B, H, T_q]; -inf where nothing is visible."""
    q_ = _f64(q)
    s = 1.0 / math.sqrt(q_.shape[-1]) if scale is None else scale
    return _probabilities(q_, _f64(k), s, segments, key_mask)[1]


def attention_backward(
    dy: ArrayLike,
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    scale: float | None = None,
    segments: Ints | None = None,
    key_mask: Ints | None = None,
    scores: Scores = ("softmax", 0, 0.0),
) -> tuple[F64, F64, F64]:
    """Returns (dq [B, T_q, H, d], dk, dv [B, T_k, G, d])."""
    dy_, q_, k_, v_ = _f64(dy), _f64(q), _f64(k), _f64(v)
    B, T_k, G, d = k_.shape
    group = q_.shape[2] // G
    s = 1.0 / math.sqrt(d) if scale is None else scale
    p, slope, summed = _score_weights(q_, k_, s, segments, key_mask, scores)
    dp = np.einsum("bqhd,bkhd->bhqk", dy_, np.repeat(v_, group, axis=2))
    ds = slope * (dp - (dp * p).sum(-1, keepdims=True) * summed) * s
    dq = np.einsum("bhqk,bkhd->bqhd", ds, np.repeat(k_, group, axis=2))
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q_).reshape(B, T_k, G, group, d).sum(3)
    dv = np.einsum("bhqk,bqhd->bkhd", p, dy_).reshape(B, T_k, G, group, v_.shape[-1]).sum(3)
    return dq, dk, dv


# ---------------------------------------------------------------- loss, optimizer


class LossSums(NamedTuple):
    """Sum of the losses in nats and number of counted targets; divide to get the mean."""

    loss: float
    targets: int


def log_softmax(logits: ArrayLike) -> F64:
    """Over the last axis."""
    x = _f64(logits)
    x = x - x.max(-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


def cross_entropy(hidden: ArrayLike, head: ArrayLike, targets: Ints) -> LossSums:
    """Loss of logits = hidden head^T. hidden [N, D], head [V, D], targets [N], negative = ignored."""
    logp = log_softmax(_f64(hidden) @ _f64(head).T)
    t = np.asarray(targets)
    rows = np.nonzero(t >= 0)[0]
    return LossSums(float(-logp[rows, t[rows]].sum()), int(rows.size))


def cross_entropy_backward(
    hidden: ArrayLike, head: ArrayLike, targets: Ints, scale: float = 1.0
) -> tuple[F64, F64]:
    """Gradients (dhidden [N, D], dhead [V, D]) of scale * summed loss."""
    h, w, t = _f64(hidden), _f64(head), np.asarray(targets)
    dlogits = np.exp(log_softmax(h @ w.T))
    rows = np.nonzero(t >= 0)[0]
    dlogits[rows, t[rows]] -= 1.0
    dlogits[t < 0] = 0.0
    dlogits *= scale
    return dlogits @ w, dlogits.T @ h


def global_norm(grads: dict[str, Any]) -> float:
    """Square root of the sum of squares over all tensors."""
    return math.sqrt(sum(float((_f64(g) ** 2).sum()) for g in grads.values()))


def clip_scale(norm: float, max_norm: float) -> float:
    """min(1, max_norm / norm): what gradients are multiplied with; 1 when max_norm is 0 (off)."""
    return 1.0 if max_norm <= 0.0 or norm <= max_norm else max_norm / norm


def adamw(
    w: ArrayLike,
    m: ArrayLike,
    v: ArrayLike,
    grad: ArrayLike,
    step: int,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.95,
    eps: float = 1e-8,
    decay: float = 0.0,
    grad_scale: float = 1.0,
) -> tuple[F64, F64, F64]:
    """One decoupled AdamW update (Loshchilov and Hutter 2019); step counts from 1. Returns (w, m, v).

    w <- w - lr * (mhat / (sqrt(vhat) + eps) + decay * w), decay applied to the old w as in torch.optim.AdamW.
    """
    g = _f64(grad) * grad_scale
    w_ = _f64(w) * (1.0 - lr * decay)
    m_ = beta1 * _f64(m) + (1.0 - beta1) * g
    v_ = beta2 * _f64(v) + (1.0 - beta2) * g * g
    m_hat = m_ / (1.0 - beta1**step)
    v_hat = v_ / (1.0 - beta2**step)
    return w_ - lr * m_hat / (np.sqrt(v_hat) + eps), m_, v_


def lion(
    w: ArrayLike, grad: ArrayLike, m: ArrayLike, lr: float, beta1: float, beta2: float, decay: float
) -> tuple[F64, F64]:
    """One update of Lion (Chen et al. 2023): (w, m). decay is the share of w taken away."""
    w_, g, m_ = _f64(w), _f64(grad), _f64(m)
    direction = np.sign(beta1 * m_ + (1.0 - beta1) * g)
    return np.asarray(w_ - lr * direction - decay * w_), np.asarray(beta2 * m_ + (1.0 - beta2) * g)


def sgd(
    w: ArrayLike, grad: ArrayLike, m: ArrayLike, lr: float, momentum: float, decay: float
) -> tuple[F64, F64]:
    """One update of SGD with Nesterov momentum: (w, m). decay is the share of w taken away."""
    w_, g = _f64(w), _f64(grad)
    m_ = np.asarray(momentum * _f64(m) + g)
    return np.asarray(w_ - lr * (g + momentum * m_) - decay * w_), m_
