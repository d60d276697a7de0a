"""Row-wise Adagrad with lazy decay, as a NumPy prototype: a row decays for all steps since its last update, then moves.

A lookup between two updates of a row reads the row without the decay of these steps.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import mudd_core as mc

WIDTH = 64
Floats = npt.NDArray[np.float32]


def lazy_adagrad(w: Floats, g: Floats, state: dict, lr: float) -> None:
    """Update the rows with a gradient. State of a row: the sum of mean squares; its decay so far, and of all steps."""
    if w.size % WIDTH:
        raise ValueError(f"expected whole rows of {WIDTH} weights, got {w.size} weights")
    weights, rows = w.reshape(-1, WIDTH), g.reshape(-1, WIDTH)
    sums, done = state["v"].reshape(-1, WIDTH), state["decays"].reshape(-1, WIDTH)
    done[:, 1] += np.float32(-np.log1p(-state["decay"]))
    found = np.flatnonzero(rows.any(axis=1))
    some = rows[found]
    total = sums[found, :1] + np.mean(some * some, axis=1, keepdims=True)
    sums[found, :1] = total
    weights[found] *= np.exp(done[found, :1] - done[found, 1:2])
    done[found, 0] = done[found, 1]
    weights[found] -= np.float32(lr) * some / (np.sqrt(total) + np.float32(state["eps"]))


mc.register_optimizer(lazy_adagrad, state=("v", "decays"))
