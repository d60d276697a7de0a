"""Bounds of the differences between fp32 and float64, in epsilons: for ops from tests/tolerances.inc, for models here.

A fixed number of epsilons fits models in which rounding grows like a sum. If a case amplifies rounding (a norm of a
state that nearly cancels), its float64 reference measures the factor: see `moved`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

EPSILON = float(np.finfo(np.float32).eps)

_ROW = re.compile(r'^MUDD_TOLERANCE\((f32|bf16), ([a-z_]+)\.([a-z0-9_]+), (\d+), ([\d.]+), "(.+)"\)$', re.M)
ROWS = _ROW.findall((Path(__file__).parents[1] / "tolerances.inc").read_text())


def op_bound(op: str) -> float:
    """Return the widest fp32 bound of an op's results, for all its passes."""
    return EPSILON * max(int(bound) for kind, name, _, bound, _, _ in ROWS if (kind, name) == ("f32", op))


# Largest difference divided by the largest entry of the reference; for the loss, by the loss.
LOGITS, LOSS, GRADIENT = 200 * EPSILON, 20 * EPSILON, 400 * EPSILON

# Largest difference divided by `moved`; the largest seen is 6.5, over 15 settings and the levels portable, avx2,
# avx512.
ROUNDINGS = 16.0


def moved(
    gradients: Callable[[Mapping[str, Array]], Mapping[str, Array]],
    weights: Mapping[str, Array],
    draws: int = 3,
) -> dict[str, float]:
    """Return how far the float64 gradient of each tensor moves when every weight moves by half an epsilon."""
    exact = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    want = gradients(exact)
    far = dict.fromkeys(want, 0.0)
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        near = {k: x * (1 + EPSILON / 2 * rng.choice([-1.0, 1.0], x.shape)) for k, x in exact.items()}
        for name, gradient in gradients(near).items():
            far[name] = max(far[name], float(np.abs(gradient - want[name]).max()))
    return far
