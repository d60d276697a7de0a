"""The type of a case of the op tests, and the random values that cases use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reference import numpy_ops as ref

F32 = NDArray[np.float32]

rng = np.random.default_rng(11)


def normal(*shape: int) -> F32:
    return rng.standard_normal(shape).astype(np.float32)


def integers(high: int, *shape: int) -> NDArray[np.int32]:
    return rng.integers(0, high, shape).astype(np.int32)


class Case(NamedTuple):
    """One call of an op with the expected results from float64 formulas."""

    op: str
    inputs: list[Any]
    options: dict[str, Any]
    forward: Callable[..., Any]  # of the inputs
    backward: Callable[..., Any]  # of dy and the inputs: a gradient or None for each input


def act(name: str, x: Any) -> Any:
    """Return the activation in float64."""
    x = np.asarray(x, np.float64)
    return {
        "none": lambda: x,
        "silu": lambda: ref.silu(x),
        "gelu_tanh": lambda: ref.gelu(x, "tanh"),
        "gelu_erf": lambda: ref.gelu(x, "erf"),
        "relu": lambda: np.maximum(x, 0),
        "squared_relu": lambda: np.maximum(x, 0) ** 2,
    }[name]()


def act_slope(name: str, x: Any) -> Any:
    """Return the derivative of the activation by central differences in float64, exact to 1e-9."""
    x = np.asarray(x, np.float64)
    h = 1e-5
    return (act(name, x + h) - act(name, x - h)) / (2 * h)
