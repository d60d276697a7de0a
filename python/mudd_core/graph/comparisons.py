"""Comparisons of tensors: NumPy's booleans, which have no gradient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mudd_core.base.types import Array, Bool
from mudd_core.graph.operators import Operand


class Comparisons:
    """== != < <= > >= of the numbers of a tensor with a tensor, an array or a number."""

    data: Array

    __hash__ = object.__hash__  # __eq__ would remove it

    def __eq__(self, other: Operand) -> Bool:  # type: ignore[override]
        return np.equal(self.data, _numbers(other))

    def __ne__(self, other: Operand) -> Bool:  # type: ignore[override]
        return np.not_equal(self.data, _numbers(other))

    def __lt__(self, other: Operand) -> Bool:
        return np.less(self.data, _numbers(other))

    def __le__(self, other: Operand) -> Bool:
        return np.less_equal(self.data, _numbers(other))

    def __gt__(self, other: Operand) -> Bool:
        return np.greater(self.data, _numbers(other))

    def __ge__(self, other: Operand) -> Bool:
        return np.greater_equal(self.data, _numbers(other))

    def _compared(self, ufunc: np.ufunc, inputs: Sequence[Operand]) -> Array | None:
        if ufunc not in _COMPARISONS:
            return None
        left, right = map(_numbers, inputs)
        return np.asarray(ufunc(left, right))


_COMPARISONS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)


def _numbers(operand: Operand) -> Array:
    """The numbers that a comparison reads."""
    return operand.data if isinstance(operand, Comparisons) else np.asarray(operand)
