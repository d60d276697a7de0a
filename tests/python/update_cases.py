"""Calls of the optimizers that are ops, with the float64 formulas."""

from __future__ import annotations

import numpy as np

from op_case import Case, normal
from reference import numpy_updates


def update_cases() -> list[Case]:
    """Return a case for each optimizer that is an op."""
    w, g, m = normal(3, 4, 33), normal(3, 4, 33), normal(3, 4, 33)
    lion = {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "decay": 0.02}
    sgd = {"lr": 0.01, "momentum": 0.8, "decay": 0.02}
    v = np.abs(normal(3, 4, 33)) + 0.1
    adamw = {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "decay": 0.02, "step": 3}
    return [
        Case(
            "adamw",
            [w, g, m, v],
            adamw,
            lambda w, g, m, v: numpy_updates.adamw_arrays(w, g, m, v, **adamw),
            lambda d, w, g, m, v: numpy_updates.adamw_arrays_backward(d, g, m, v, **adamw),
        ),
        Case(
            "lion",
            [w, g, m],
            lion,
            lambda w, g, m: numpy_updates.lion(w, g, m, **lion),
            lambda d, w, g, m: (d[0] * 0.98, 0.05 * d[1], 0.95 * d[1]),
        ),
        Case(
            "sgd",
            [w, g, m],
            sgd,
            lambda w, g, m: numpy_updates.sgd(w, g, m, **sgd),
            lambda d, w, g, m: (d[0] * 0.98, d[1] - 0.018 * d[0], 0.8 * d[1] - 0.0064 * d[0]),
        ),
    ]
