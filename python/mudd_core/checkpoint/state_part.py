"""A part of a tensor of the state: what a rank holds of it, in a run of one process all of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from mudd_core.base.types import Array
from mudd_core.checkpoint import dtypes


def is_weight(name: str) -> bool:
    """True for the name of a weight; a tensor of the optimizer's state is named `plane/name`."""
    return "/" not in name


@dataclass(frozen=True)
class StatePart:
    """Elements [begin, begin + array.size) of the row-major tensor `name` of shape global_shape.

    Parts of tensors of two and more axes are whole rows (all axes but the last count as rows), of vectors any numbers.
    shared: all ranks of a node have this very memory, so one of them has to read a number of it.
    """

    name: str
    global_shape: tuple[int, ...]
    begin: int
    array: Array
    shared: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.array, np.ndarray):
            got = type(self.array).__name__
            raise TypeError(f"[checkpoint] {self.name}: expected a NumPy array, got {got}")
        if dtypes.name_of(self.array.dtype) is None:
            raise ValueError(
                f"[checkpoint] {self.name}: expected a dtype of safetensors, got {self.array.dtype}"
            )
        if self.begin < 0 or self.end > self.elements or self.begin % self.row or self.array.size % self.row:
            raise ValueError(
                f"[checkpoint] {self.name}: expected whole rows of {self.global_shape}, got elements {self.begin} to "
                f"{self.end}"
            )

    @property
    def dtype(self) -> str:
        """The name that safetensors has for the dtype."""
        name = dtypes.name_of(self.array.dtype)
        assert name is not None
        return name

    @property
    def elements(self) -> int:
        """Of the whole tensor."""
        return math.prod(self.global_shape)

    @property
    def end(self) -> int:
        """The element behind the last one."""
        return self.begin + self.array.size

    @property
    def row(self) -> int:
        """Elements of a row, 1 of a vector."""
        return row_of(self.global_shape)

    @property
    def whole(self) -> bool:
        """Whether this is all of the tensor."""
        return self.array.size == self.elements

    def cut(self, begin: int, end: int) -> StatePart:
        """Elements [begin, end) of the tensor, which this part has: the same memory if it is contiguous."""
        if (begin, end) == (self.begin, self.end):
            return self
        inner = self.array.reshape(-1)[begin - self.begin : end - self.begin]
        shape = part_shape(self.global_shape, end - begin)
        return StatePart(self.name, self.global_shape, begin, inner.reshape(shape), self.shared)


@dataclass(frozen=True)
class LaterPart(StatePart):
    """A whole tensor whose numbers `make` gives, elements [begin, end) at a time: `array` has type and shape alone."""

    make: Callable[[int, int], Array] = field(kw_only=True)

    def cut(self, begin: int, end: int) -> StatePart:
        """Elements [begin, end) of the tensor, made now."""
        made = self.make(begin, end).reshape(part_shape(self.global_shape, end - begin))
        return StatePart(self.name, self.global_shape, begin, made)


# Of a part: name, dtype, shape of the whole tensor, begin and end; JSON gives another rank's as lists.
Described = tuple[str, str, list[int], int, int]


def described(part: StatePart) -> Described:
    """What the other ranks learn of a part."""
    return part.name, part.dtype, list(part.global_shape), part.begin, part.end


def row_of(shape: tuple[int, ...]) -> int:
    """Elements of a row of a tensor, 1 of a vector."""
    return max(1, shape[-1]) if len(shape) > 1 else 1


def part_shape(shape: tuple[int, ...], elements: int) -> tuple[int, ...]:
    """The shape that a part of so many elements is stored with: all of the tensor's, or [rows, last axis], or [n]."""
    if elements == math.prod(shape):
        return shape
    return (elements // row_of(shape), shape[-1]) if len(shape) > 1 else (elements,)


def whole_tensors(parts: Iterable[StatePart]) -> dict[str, Array]:
    """The tensors of a state by name. ValueError where this rank has a part of one only."""
    tensors = {}
    for part in parts:
        if not part.whole:
            raise ValueError(
                f"[checkpoint] {part.name}: this rank has elements {part.begin} to {part.end} only"
            )
        tensors[part.name] = part.array
    return tensors
