"""NumPy's functions of tensors, and comparisons, which return NumPy's booleans without a gradient.

A function calls the method of the same name, or reads the values, or raises TypeError if a gradient would be lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.types import Array, Bool

if TYPE_CHECKING:
    from mudd_core.graph.operators import Operand

_METHODS = {np.sum: "sum", np.mean: "mean", np.reshape: "reshape", np.transpose: "transpose"}
_SIZES = {np.shape: "shape", np.ndim: "ndim", np.size: "size"}


class NumpyFunctions:
    """NumPy's functions for tensors: np.sum(t) is t.sum(), and np.argmax(t) reads values.

    np.concatenate([t, u]) raises TypeError, because it would lose a gradient.
    """

    @property
    def wants_gradient(self) -> bool:
        """True if reading the values alone would lose a gradient."""
        raise TypeError("[graph] a value of a graph has a shape but no data yet; use an op or mc.custom")

    if not TYPE_CHECKING:  # type checkers know these functions from NumPy's stubs

        def __array_function__(self, function, types, arguments, options):
            first = arguments[0] if arguments else None
            if function in _METHODS and isinstance(first, NumpyFunctions):
                return getattr(first, _METHODS[function])(*arguments[1:], **options)
            if (
                function in _SIZES
                and isinstance(first, NumpyFunctions)
                and len(arguments) == 1
                and not options
            ):
                return getattr(first, _SIZES[function])
            found = []
            result = function(*_numbers(arguments, found), **_numbers(options, found))
            if any(found) and _has_floats(result):
                name = f"{function.__module__.replace('numpy', 'np')}.{function.__name__}"
                raise TypeError(
                    f"[{name}] no gradient is known; pass np.asarray(t) for the values alone, or type "
                    "mc.custom(forward, backward, t) for an op"
                )
            return result


if not TYPE_CHECKING:

    def _numbers(given, found):
        """Return the arguments with arrays in place of tensors; record in `found` whether each wants a gradient."""
        if isinstance(given, NumpyFunctions):
            found.append(given.wants_gradient)
            return np.asarray(given)
        if isinstance(given, dict):
            return {name: _numbers(one, found) for name, one in given.items()}
        return type(given)(_numbers(one, found) for one in given) if type(given) in (list, tuple) else given

    def _has_floats(result):
        parts = result if isinstance(result, list | tuple) else [result]
        return any(
            isinstance(one, np.ndarray | np.floating | float) and np.asarray(one).dtype.kind == "f"
            for one in parts
        )


class Comparisons:
    """The comparisons == != < <= > >= of a tensor with a tensor, an array or a number."""

    data: Array

    __hash__ = object.__hash__  # __eq__ would remove it

    def __eq__(self, other: Operand) -> Bool:  # type: ignore[override]
        return np.equal(self.data, _compared_numbers(other))

    def __ne__(self, other: Operand) -> Bool:  # type: ignore[override]
        return np.not_equal(self.data, _compared_numbers(other))

    def __lt__(self, other: Operand) -> Bool:
        return np.less(self.data, _compared_numbers(other))

    def __le__(self, other: Operand) -> Bool:
        return np.less_equal(self.data, _compared_numbers(other))

    def __gt__(self, other: Operand) -> Bool:
        return np.greater(self.data, _compared_numbers(other))

    def __ge__(self, other: Operand) -> Bool:
        return np.greater_equal(self.data, _compared_numbers(other))

    def _compared(self, ufunc: np.ufunc, inputs: Sequence[Operand]) -> Array | None:
        if ufunc not in _COMPARISONS:
            return None
        left, right = map(_compared_numbers, inputs)
        return np.asarray(ufunc(left, right))


_COMPARISONS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)


def _compared_numbers(operand: Operand) -> Array:
    """Return the values that a comparison reads."""
    return operand.data if isinstance(operand, Comparisons) else np.asarray(operand)
