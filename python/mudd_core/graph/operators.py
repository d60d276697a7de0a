"""NumPy's operators and methods on the values of both executors.

An operator runs a fused op of the core if one computes the same: add and multiply of equal shapes, and matmul. The
others are functions of NumPy, which a graph runs like the functions of mudd_core.custom.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from mudd_core.base.types import Array
from mudd_core.graph import differentiable
from mudd_core.graph.constants import constant
from mudd_core.graph.differentiable import Axes, Differentiable, Key
from mudd_core.graph.numpy_functions import NumpyFunctions

# The other operand of an operator.
Operand: TypeAlias = "Operators | npt.ArrayLike"

_FUSED = {"add": ("add", {}), "multiply": ("glu", {"activation": "none"})}


class Operators(NumpyFunctions):
    """Arithmetic (+ - * / ** @) with NumPy's broadcasting, sums, shapes and indexing; all have gradients."""

    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[int, ...]:
            """Shape of the array."""

        @property
        def dtype(self) -> np.dtype[np.generic]:
            """Dtype of the elements."""

        @property
        def is_weight(self) -> bool:
            """True for a parameter, whose first axis is not the batch."""

    def _fused(self, op: str, inputs: Sequence[Self], options: dict[str, str]) -> Self:
        """Run or record an op of the core."""
        raise NotImplementedError

    def _function(self, function: Differentiable, inputs: Sequence[Self], whole: Sequence[bool] = ()) -> Self:
        """Run or record a function of NumPy.

        whole: empty for one call on the whole batch. Otherwise the function is called on slices of the batch, and
        `whole` has for each input True if every slice needs all of it. The gradients of those inputs are summed by the
        tree over shards.
        """
        raise NotImplementedError

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("[len] expected at least one axis, got a single number; type t.item()")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        return (self[index] for index in range(len(self)))

    # ---- arithmetic -----------------------------------------------------------------------------------------

    def _binary(self, name: str, left: Operand, right: Operand) -> Self:
        """Return the result of a function of two operands, one of which is `self`."""
        function = differentiable.MATMUL if name == "matmul" else differentiable.BINARY[name]
        given = [one if isinstance(one, type(self)) else None for one in (left, right)]
        values = [one for one in given if one is not None]
        if len(values) == 2 and (fused := _fused_for(name, values[0], values[1])) is not None:
            return self._fused(fused[0], values, fused[1])
        constants = [
            constant(operand, self.dtype) if value is None else None
            for operand, value in zip((left, right), given, strict=True)
        ]
        _require_shapes(name, *(v if c is None else c for v, c in zip(given, constants, strict=True)))
        whole = _whole(name, given, constants)
        return self._function(differentiable.with_constants(function, constants), values, whole)

    def __add__(self, other: Operand) -> Self:
        return self._binary("add", self, other)

    def __radd__(self, other: Operand) -> Self:
        return self._binary("add", other, self)

    def __sub__(self, other: Operand) -> Self:
        return self._binary("subtract", self, other)

    def __rsub__(self, other: Operand) -> Self:
        return self._binary("subtract", other, self)

    def __mul__(self, other: Operand) -> Self:
        return self._binary("multiply", self, other)

    def __rmul__(self, other: Operand) -> Self:
        return self._binary("multiply", other, self)

    def __truediv__(self, other: Operand) -> Self:
        return self._binary("divide", self, other)

    def __rtruediv__(self, other: Operand) -> Self:
        return self._binary("divide", other, self)

    def __pow__(self, other: Operand) -> Self:
        return self._binary("power", self, other)

    def __rpow__(self, other: Operand) -> Self:
        return self._binary("power", other, self)

    def __matmul__(self, other: Operand) -> Self:
        return self._binary("matmul", self, other)

    def __rmatmul__(self, other: Operand) -> Self:
        return self._binary("matmul", other, self)

    def __neg__(self) -> Self:
        return self._function(differentiable.UNARY["negative"], [self])

    def __abs__(self) -> Self:
        return self._function(differentiable.UNARY["absolute"], [self])

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Operand, **options: Operand
    ) -> Self | Array:
        """Run `array + tensor` and `np.exp(tensor)` as ops. Raise TypeError for functions without a gradient here."""
        if method == "__call__" and not options:
            if ufunc.__name__ in differentiable.UNARY:
                return self._function(differentiable.UNARY[ufunc.__name__], [self])
            if (name := ufunc.__name__) in (*differentiable.BINARY, "matmul"):
                return self._binary(name, *inputs)
            if (compared := self._compared(ufunc, inputs)) is not None:
                return compared
        raise TypeError(
            f"[np.{ufunc.__name__}] no gradient is known; type np.{ufunc.__name__}(np.asarray(t)) for the values "
            "alone, or mc.custom(forward, backward, t) for an op"
        )

    def _compared(self, ufunc: np.ufunc, inputs: Sequence[Operand]) -> Array | None:
        """Return the booleans of a comparison; None for values of a graph and for any other function."""
        return None

    # ---- sums, shapes, indexing -----------------------------------------------------------------------------

    # The unused parameters dtype, out and order exist because np.sum(t), np.mean(t) and np.reshape(t, shape) pass them.

    def sum(self, axis: Axes = None, dtype: None = None, out: None = None, *, keepdims: bool = False) -> Self:
        """Return the sum over one axis, several, or all."""
        return self._function(differentiable.total(axis, keepdims), [self])

    def mean(
        self, axis: Axes = None, dtype: None = None, out: None = None, *, keepdims: bool = False
    ) -> Self:
        """Return the mean over one axis, several, or all."""
        return self._function(differentiable.mean(axis, keepdims), [self])

    def reshape(self, *shape: int | Sequence[int], order: str = "C") -> Self:
        """Return the same elements in another shape, passed as lengths or a tuple; one of them may be -1."""
        return self._function(differentiable.reshaped(_lengths(shape)), [self])

    def transpose(self, *axes: int | Sequence[int] | None) -> Self:
        """Return the axes in this order; without arguments they are reversed."""
        order = None if axes in ((), (None,)) else _lengths(tuple(one for one in axes if one is not None))
        return self._function(differentiable.transposed(order), [self])

    @property
    def T(self) -> Self:
        """The transpose: all axes reversed."""
        return self.transpose()

    def __getitem__(self, key: Key | Operators) -> Self:
        return self._function(differentiable.indexed(_plain(key)), [self])

    def __bool__(self) -> bool:
        raise TypeError("[graph] a value of a graph has a shape but no data yet; a condition cannot read it")

    def __setitem__(self, key: Key, value: Operand) -> NoReturn:
        raise TypeError(
            "[Tensor] t[key] = value: a tensor is not changed in place; write t.data[key] = value "
            "before its first op, or compute a new one"
        )


def _plain(key: Key | Operators) -> Key:
    """Return a key with arrays in place of tensors."""
    if isinstance(key, Operators):
        return np.asarray(key)
    return (
        tuple(np.asarray(one) if isinstance(one, Operators) else one for one in key)
        if isinstance(key, tuple)
        else key
    )


def _lengths(given: Sequence[int | Sequence[int]]) -> tuple[int, ...]:
    """Return (2, 3) for both `2, 3` and `(2, 3)`."""
    if len(given) == 1 and isinstance(given[0], Sequence):
        return tuple(given[0])
    return tuple(one for one in given if not isinstance(one, Sequence))


def _whole(
    name: str, given: Sequence[Operators | None], constants: Sequence[Array | None]
) -> tuple[bool, ...]:
    """Return for each value True if all rows of the result read all of it; empty if the shards are not separable.

    The first axis of the result is the batch. A value with the same first axis is read row by row.
    """
    axes = 2 if name == "matmul" else 0  # the last axes, which are not broadcast
    shapes = [
        c.shape if c is not None else v.shape if v is not None else ()
        for v, c in zip(given, constants, strict=True)
    ]
    batches = [shape[: max(len(shape) - axes, 0)] for shape in shapes]
    batch = np.broadcast_shapes(*batches)
    if (
        not batch
        or batch[0] == 1
        or len(batch) + axes < 2
        or any(v is not None and not v.shape for v in given)
    ):
        return ()
    by_row = [len(one) == len(batch) and one[0] == batch[0] for one in batches]
    for value, cut in zip(given, by_row, strict=True):
        if cut and (value is None or value.is_weight):
            return ()  # a constant or a weight has a row for each sample
    return tuple(not cut for value, cut in zip(given, by_row, strict=True) if value is not None)


def _fused_for(name: str, left: Operators, right: Operators) -> tuple[str, dict[str, str]] | None:
    """Return (op, options) of the core for two values; None if only NumPy's broadcasting computes the result."""
    if not (left.dtype == right.dtype == np.float32 and left.size and right.size and left.shape):
        return None
    if name == "matmul":
        fits = left.ndim >= 2 and right.ndim == 2 and left.shape[-1] == right.shape[0]
        return ("linear", {}) if fits else None
    return _FUSED.get(name) if left.shape == right.shape else None


def _require_shapes(name: str, left: Operators | Array | None, right: Operators | Array | None) -> None:
    """Raise ValueError with both shapes unless NumPy can compute the result."""
    assert left is not None and right is not None
    if name == "matmul":
        if not left.shape or not right.shape:
            raise ValueError("[@] expected arrays, got a single number; type *")
        inner = right.shape[-2] if len(right.shape) > 1 else right.shape[0]
        if left.shape[-1] != inner:
            raise ValueError(
                f"[@] expected the last axis of the left shape {left.shape} to equal "
                f"{'the second last' if len(right.shape) > 1 else 'that'} of the right shape {right.shape}"
            )
        pair = (left.shape[:-2], right.shape[:-2])
    else:
        pair = (left.shape, right.shape)
    try:
        np.broadcast_shapes(*pair)
    except ValueError:
        raise ValueError(
            f"[{name}] expected shapes that broadcast, got {left.shape} and {right.shape}"
        ) from None
