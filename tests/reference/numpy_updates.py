"""Float64 NumPy optimizers: one update of each; the global norm of gradients and its clip."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from reference.numpy_ops import F64, f64


def global_norm(grads: dict[str, Any]) -> float:
    """Return the square root of the sum of squares over all tensors."""
    return math.sqrt(sum(float((f64(g) ** 2).sum()) for g in grads.values()))


def clip_scale(norm: float, max_norm: float) -> float:
    """Return min(1, max_norm / norm), the factor on the gradients; 1 if max_norm is 0 (off)."""
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
    eps_root: float = 0.0,
) -> tuple[F64, F64, F64]:
    """Return (w, m, v) after one decoupled AdamW update (Loshchilov and Hutter 2019); step starts at 1.

    w <- w - lr * (mhat / (sqrt(vhat + eps_root) + eps) + decay * w); decay applies to the old w, as in torch.
    """
    g = f64(grad) * grad_scale
    w_ = f64(w) * (1.0 - lr * decay)
    m_ = beta1 * f64(m) + (1.0 - beta1) * g
    v_ = beta2 * f64(v) + (1.0 - beta2) * g * g
    m_hat = m_ / (1.0 - beta1**step)
    v_hat = v_ / (1.0 - beta2**step)
    return w_ - lr * m_hat / (np.sqrt(v_hat + eps_root) + eps), m_, v_


def adamw_arrays(
    w: ArrayLike, grad: ArrayLike, m: ArrayLike, v: ArrayLike, *, lr: float, decay: float, **options: Any
) -> tuple[F64, F64, F64]:
    """Return (w, m, v) after one update, as the op does. decay is the fraction of w that is subtracted."""
    return adamw(w, m, v, grad, lr=lr, decay=decay / lr, **options)


def adamw_arrays_backward(
    d: Any,
    grad: ArrayLike,
    m: ArrayLike,
    v: ArrayLike,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    step: int,
) -> tuple[F64, F64, F64, F64]:
    """Return the gradients of (w, grad, m, v) from the gradients d of the new (w, m, v)."""
    g, rate, root = f64(grad), lr / (1.0 - beta1**step), 1.0 / math.sqrt(1.0 - beta2**step)
    m_, v_ = beta1 * f64(m) + (1.0 - beta1) * g, beta2 * f64(v) + (1.0 - beta2) * g * g
    below = np.sqrt(v_) * root + eps
    dm = d[1] - d[0] * rate / below
    dv = d[2] + d[0] * rate * m_ / below**2 * root / (2.0 * np.sqrt(v_))
    return d[0] * (1.0 - decay), (1.0 - beta1) * dm + 2.0 * (1.0 - beta2) * g * dv, beta1 * dm, beta2 * dv


def lion(
    w: ArrayLike, grad: ArrayLike, m: ArrayLike, lr: float, beta1: float, beta2: float, decay: float
) -> tuple[F64, F64]:
    """Return (w, m) after one update of Lion (Chen et al. 2023). decay is the fraction of w that is subtracted."""
    w_, g, m_ = f64(w), f64(grad), f64(m)
    direction = np.sign(beta1 * m_ + (1.0 - beta1) * g)
    return np.asarray(w_ - lr * direction - decay * w_), np.asarray(beta2 * m_ + (1.0 - beta2) * g)


def sgd(
    w: ArrayLike,
    grad: ArrayLike,
    m: ArrayLike,
    lr: float,
    momentum: float,
    decay: float,
    nesterov: bool = True,
) -> tuple[F64, F64]:
    """Return (w, m) after one update of SGD with momentum, by default Nesterov's. decay: the fraction of w removed."""
    w_, g = f64(w), f64(grad)
    m_ = np.asarray(momentum * f64(m) + g)
    step = g + momentum * m_ if nesterov else m_
    return np.asarray(w_ - lr * step - decay * w_), m_
