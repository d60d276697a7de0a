"""Conversion of users' lists, numbers and arrays to arrays of the dtypes that ops compute in."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mudd_core.base.types import Array

if TYPE_CHECKING:
    from mudd_core.graph.operators import Operators

_said: list[bool] = []  # not empty after the warning below was printed; it appears once in a process


def as_array(data: npt.ArrayLike) -> Array:
    """Return an array as it is, a list or number as an array; float64 becomes float32, for arrays with one warning."""
    array = np.asarray(data)
    if array.dtype != np.float64:
        return array
    if isinstance(data, np.ndarray) and not _said:
        _said.append(True)
        warnings.warn(
            "[Tensor] float64 arrays are converted to float32; pass x.astype(np.float32) (shown once)",
            stacklevel=_caller(),
        )
    return array.astype(np.float32)


def as_input(data: npt.ArrayLike) -> Array:
    """Return an array as it is, because ops check its dtype; a list or number becomes an array, floats in float32."""
    return data if isinstance(data, np.ndarray) else as_array(data)


def constant(value: npt.ArrayLike | Operators, dtype: np.dtype[np.generic]) -> Array:
    """Return the other operand of an operator on a tensor of this dtype. Raise TypeError unless it is numeric."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        kind = type(value).__name__ if array.dtype.kind == "O" else array.dtype
        raise TypeError(f"[Tensor] expected a tensor, an array or a number on the other side, got {kind}")
    if dtype != np.float64:
        array = as_array(array if isinstance(value, np.ndarray) else array.tolist())
    return array.astype(dtype) if dtype.kind == "f" else array


def _caller() -> int:
    """Return the stacklevel, as seen by the caller of this function, of the first caller outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("mudd_core"):
        level, frame = level + 1, frame.f_back
    return level
