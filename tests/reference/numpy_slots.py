"""Float64 NumPy token-parameter attention (docs/maths/tokenformer.md, 1), forward and backward."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from reference.numpy_ops import F64, f64, gelu, gelu_backward, linear, linear_backward


class Slots(NamedTuple):
    """Options of token-parameter attention (docs/maths/tokenformer.md, 1)."""

    norm: str = "l2_norm_gelu"
    gelu: str = "tanh"  # or erf
    eps: float = 1e-5
    zoom: float = 0.0  # 0: the number of tokens
    scale: float = 1.0


_SLOTS = Slots()


def pattention_theta(a: ArrayLike, options: Slots) -> F64:
    """Return Theta of rows of scores [R, n]; zeros for a row of zero norm, or of zero variance without eps."""
    a = f64(a)
    n = a.shape[-1]
    tau = np.sqrt(options.zoom or n)
    if options.norm == "softmax":
        e = np.exp(a - a.max(-1, keepdims=True))
        return n * e / e.sum(-1, keepdims=True)
    u = a if options.norm in ("l2_norm_gelu", "l2_norm") else gelu(a, options.gelu)
    if options.norm == "gelu":
        return u
    if options.norm == "gelu_layer_norm":
        deviation = np.sqrt(u.var(-1, keepdims=True) + options.eps)
        return np.divide(u - u.mean(-1, keepdims=True), deviation, out=np.zeros_like(u), where=deviation > 0)
    norm = np.sqrt((u * u).sum(-1, keepdims=True))
    z = np.divide(tau * u, norm + options.eps, out=np.zeros_like(u), where=norm > 0)
    return gelu(z, options.gelu) if options.norm == "l2_norm_gelu" else z


def pattention_theta_backward(ds: ArrayLike, a: ArrayLike, options: Slots) -> F64:
    """Return the gradient of the scores; zero for a row of zero norm, or of zero variance without eps."""
    a, ds = f64(a), f64(ds)
    if options.norm == "softmax":
        s = pattention_theta(a, options)
        return s * (ds - (ds * s).sum(-1, keepdims=True) / a.shape[-1])
    if options.norm == "gelu":
        return gelu_backward(ds, a, options.gelu)
    u = a if options.norm in ("l2_norm_gelu", "l2_norm") else gelu(a, options.gelu)
    if options.norm == "gelu_layer_norm":
        s = pattention_theta(a, options)
        centred = ds - ds.mean(-1, keepdims=True) - s * (ds * s).mean(-1, keepdims=True)
        deviation = np.sqrt(u.var(-1, keepdims=True) + options.eps)
        du = np.divide(centred, deviation, out=np.zeros_like(u), where=deviation > 0)
        return gelu_backward(du, a, options.gelu)
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
    """Return scale Theta(x key^T + key_bias) value + value_bias. x [R, D], key [n, D], value [n, D2]."""
    a = linear(x, f64(key).T, key_bias)
    return linear(options.scale * pattention_theta(a, options), value, value_bias)


def pattention_backward(
    dy: ArrayLike,
    x: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    key_bias: ArrayLike | None = None,
    options: Slots = _SLOTS,
) -> tuple[F64, F64, F64, F64, F64]:
    """Return the gradients (dx, dkey, dvalue, dkey_bias, dvalue_bias)."""
    a = linear(x, f64(key).T, key_bias)
    ds, dvalue, dvalue_bias = linear_backward(dy, options.scale * pattention_theta(a, options), value)
    da = pattention_theta_backward(options.scale * ds, a, options)
    dx, dkey, dkey_bias = linear_backward(da, x, f64(key).T)
    return dx, dkey.T, dvalue, dkey_bias, dvalue_bias
