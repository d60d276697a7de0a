"""NumPy functions with their gradients: arithmetic, sums, shapes, indexing and matmuls.

Both executors run the same functions and so return the same bits. A gradient has the shape of its input: it is summed
over the axes that broadcasting added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import TypeAlias

import numpy as np

from mudd_core.base.types import Array

_Index: TypeAlias = "int | slice | EllipsisType | Array | Sequence[int] | None"
# The index that NumPy accepts in a[key].
Key: TypeAlias = "_Index | tuple[_Index, ...]"
Axes: TypeAlias = "int | tuple[int, ...] | None"


@dataclass(frozen=True)
class Differentiable:
    """A function of arrays and its gradients: for each input a function of (gradient of the result, *inputs)."""

    forward: Callable[..., Array]
    gradients: tuple[Callable[..., Array], ...]

    def value(self, inputs: Sequence[Array]) -> Array:
        """Return the result, C-contiguous. It is float64 only if an input is, and int32 if all inputs are."""
        with np.errstate(all="ignore"):
            y = np.asarray(self.forward(*inputs), order="C")
        kinds = {one.dtype for one in inputs}
        if y.dtype == np.float64 and np.dtype(np.float64) not in kinds:
            return y.astype(np.float32)
        return y.astype(np.int32) if y.dtype == np.int64 and kinds == {np.dtype(np.int32)} else y

    def gradient(self, index: int, dy: Array, inputs: Sequence[Array]) -> Array:
        """Return the gradient of one input, in its shape and dtype."""
        with np.errstate(all="ignore"):
            return np.asarray(self.gradients[index](dy, *inputs), inputs[index].dtype, order="C")


def with_constants(function: Differentiable, given: Sequence[Array | None]) -> Differentiable:
    """Return the function of the inputs that are None in `given`; the other entries of `given` are constants."""

    def filled(inputs: Sequence[Array]) -> list[Array]:
        left = iter(inputs)
        return [next(left) if one is None else one for one in given]

    def of(gradient: Callable[..., Array]) -> Callable[..., Array]:
        return lambda dy, *inputs: gradient(dy, *filled(inputs))

    free = (g for g, one in zip(function.gradients, given, strict=True) if one is None)
    return Differentiable(
        lambda *inputs: function.forward(*filled(inputs)), tuple(of(gradient) for gradient in free)
    )


def summed_to(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Return the gradient of an array of this shape that was broadcast: the sum over the added and stretched axes."""
    added = gradient.ndim - len(shape)
    stretched = [added + i for i, n in enumerate(shape) if n == 1 and gradient.shape[added + i] != 1]
    axes = (*range(added), *stretched)
    return (gradient.sum(axes, keepdims=True) if axes else gradient).reshape(shape)


def _elementwise(
    forward: Callable[..., Array], left: Callable[..., Array], right: Callable[..., Array]
) -> Differentiable:
    return Differentiable(
        forward,
        (
            lambda dy, a, b: summed_to(left(dy, a, b), a.shape),
            lambda dy, a, b: summed_to(right(dy, a, b), b.shape),
        ),
    )


BINARY = {
    "add": _elementwise(np.add, lambda dy, a, b: dy, lambda dy, a, b: dy),
    "subtract": _elementwise(np.subtract, lambda dy, a, b: dy, lambda dy, a, b: -dy),
    "multiply": _elementwise(np.multiply, lambda dy, a, b: dy * b, lambda dy, a, b: dy * a),
    "divide": _elementwise(np.divide, lambda dy, a, b: dy / b, lambda dy, a, b: -dy * a / (b * b)),
    # As in PyTorch, x ** 0 has the gradient 0 also at x = 0. The gradient of 0 ** y with respect to y is 0 for y >= 0.
    "power": _elementwise(
        np.power,
        lambda dy, a, b: np.where(b == 0, 0, dy * b * np.power(a, b - 1)),
        lambda dy, a, b: np.where((a == 0) & (b >= 0), 0, dy * np.power(a, b) * np.log(a)),
    ),
}

UNARY = {
    "negative": Differentiable(np.negative, (lambda dy, a: -dy,)),
    "exp": Differentiable(np.exp, (lambda dy, a: dy * np.exp(a),)),
    "log": Differentiable(np.log, (lambda dy, a: dy / a,)),
    "sqrt": Differentiable(np.sqrt, (lambda dy, a: dy / (2 * np.sqrt(a)),)),
    "square": Differentiable(np.square, (lambda dy, a: 2 * dy * a,)),
    "tanh": Differentiable(np.tanh, (lambda dy, a: dy * (1 - np.tanh(a) ** 2),)),
    "absolute": Differentiable(np.absolute, (lambda dy, a: dy * np.sign(a),)),
}


def total(axis: Axes, keepdims: bool) -> Differentiable:
    """Return the sum over the axes (None: all)."""
    return Differentiable(
        lambda a: np.sum(a, axis, keepdims=keepdims),
        (lambda dy, a: np.broadcast_to(_kept(dy, a, axis), a.shape),),
    )


def mean(axis: Axes, keepdims: bool) -> Differentiable:
    """Return the mean over the axes (None: all)."""

    def gradient(dy: Array, a: Array) -> Array:
        count = a.size // dy.size if dy.size else 1
        return np.broadcast_to(_kept(dy, a, axis) / a.dtype.type(count), a.shape)

    return Differentiable(lambda a: np.mean(a, axis, keepdims=keepdims), (gradient,))


def _kept(dy: Array, a: Array, axis: Axes) -> Array:
    """Return the gradient of a reduction with the reduced axes as axes of length 1."""
    axes = range(a.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    reduced = {one % a.ndim for one in axes} if a.ndim else set()
    return dy.reshape([1 if i in reduced else n for i, n in enumerate(a.shape)])


def reshaped(shape: tuple[int, ...]) -> Differentiable:
    """Return a reshape to this shape; one length may be -1."""
    return Differentiable(lambda a: np.reshape(a, shape), (lambda dy, a: dy.reshape(a.shape),))


def transposed(axes: tuple[int, ...] | None) -> Differentiable:
    """Return a transpose to this order of axes (None: reversed)."""

    def gradient(dy: Array, a: Array) -> Array:
        return np.transpose(dy, None if axes is None else np.argsort([axis % a.ndim for axis in axes]))

    return Differentiable(lambda a: np.transpose(a, axes), (gradient,))


def indexed(key: Key) -> Differentiable:
    """Return a[key] for any key that NumPy accepts; an element that is read twice gets both gradients."""
    several = key if isinstance(key, tuple) else (key,)
    basic = all(
        one is None or one is Ellipsis or isinstance(one, int | np.integer | slice) for one in several
    )

    def gradient(dy: Array, a: Array) -> Array:
        into = np.zeros(a.shape, a.dtype)
        if basic:
            into[key] = dy
        else:  # flat positions, because np.add.at accepts those for every key
            np.add.at(into.reshape(-1), np.arange(a.size).reshape(a.shape)[key], dy)
        return into

    return Differentiable(lambda a: a[key], (gradient,))


def _as_matrices(a: Array, b: Array) -> tuple[Array, Array]:
    return (a[None, :] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)


def _as_product(dy: Array, a: Array, b: Array) -> Array:
    """Restore in the gradient of a matmul the axes that np.matmul drops for vectors."""
    dy = dy[..., None] if b.ndim == 1 else dy
    return dy[..., None, :] if a.ndim == 1 else dy


def _left_of_matmul(dy: Array, a: Array, b: Array) -> Array:
    left, right = _as_matrices(a, b)
    d = np.matmul(_as_product(dy, a, b), np.swapaxes(right, -1, -2))
    return summed_to(d, left.shape).reshape(a.shape)


def _right_of_matmul(dy: Array, a: Array, b: Array) -> Array:
    left, right = _as_matrices(a, b)
    d = np.matmul(np.swapaxes(left, -1, -2), _as_product(dy, a, b))
    return summed_to(d, right.shape).reshape(b.shape)


MATMUL = Differentiable(np.matmul, (_left_of_matmul, _right_of_matmul))
