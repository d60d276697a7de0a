"""AdamW in NumPy, an example of a user's optimizer: `optim.name=examples/adamw.py:adamw`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import mudd_core as mc

Floats = npt.NDArray[np.float32]


def adamw(w: Floats, g: Floats, state: dict, lr: float, beta1: float = 0.9, beta2: float = 0.95) -> None:
    """Update each weight separately; w and the moments change in place."""
    m, v, step = state["m"], state["v"], state["step"]
    m += (1 - beta1) * (g - m)
    v += (1 - beta2) * (g * g - v)
    root = np.sqrt(v / (1 - beta2**step)) + state["eps"]
    w -= state["decay"] * w
    w -= lr / (1 - beta1**step) * m / root


def momentum(w: Floats, g: Floats, state: dict, lr: float) -> Floats:
    """Return the new matrix: momentum with an update of root mean square 0.2, as in Muon."""
    state["m"] = 0.95 * state["m"] + g
    update = state["m"] / (np.sqrt(np.mean(state["m"] ** 2)) + 1e-12)
    return w - np.float32(state["decay"]) * w - np.float32(0.2 * lr) * update


mc.register_optimizer(adamw, state=("m", "v"))
mc.register_optimizer(momentum, state=("m",), whole=True)
