"""Row-wise optimizers for tables of n-gram rows, as NumPy prototypes: one number of state for each row of 64 weights.

Only rows with a gradient move; weight decay applies to all rows, as an exact lazy decay would.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import mudd_core as mc

WIDTH = 64
Floats = npt.NDArray[np.float32]


def _touched(
    w: Floats, g: Floats, v: Floats, decay: float
) -> tuple[Floats, Floats, Floats, npt.NDArray[np.int64]]:
    """Decay all weights; return views of w, g and v as rows, and the indices of the rows with a gradient."""
    if w.size % WIDTH:
        raise ValueError(f"expected whole rows of {WIDTH} weights, got {w.size} weights")
    w -= np.float32(decay) * w
    rows = g.reshape(-1, WIDTH)
    return w.reshape(-1, WIDTH), rows, v.reshape(-1, WIDTH), np.flatnonzero(rows.any(axis=1))


def adagrad(w: Floats, g: Floats, state: dict, lr: float) -> None:
    """Divide by the root of the sum of a row's mean squares."""
    weights, rows, sums, found = _touched(w, g, state["v"], state["decay"])
    some = rows[found]
    total = sums[found, :1] + np.mean(some * some, axis=1, keepdims=True)
    sums[found, :1] = total
    weights[found] -= np.float32(lr) * some / (np.sqrt(total) + np.float32(state["eps"]))


def rms(w: Floats, g: Floats, state: dict, lr: float, beta2: float = 0.95) -> None:
    """Divide by the root of the moving average of a row's mean squares over the steps that touch it."""
    weights, rows, means, found = _touched(w, g, state["v"], state["decay"])
    some = rows[found]
    square = np.mean(some * some, axis=1, keepdims=True)
    old = means[found, :1]
    mean = np.where(old > 0, np.float32(beta2) * old + np.float32(1 - beta2) * square, square)
    means[found, :1] = mean
    weights[found] -= np.float32(lr) * some / (np.sqrt(mean) + np.float32(state["eps"]))


mc.register_optimizer(adagrad, state=("v",))
mc.register_optimizer(rms, state=("v",))
