"""A part of a tensor of the state: the elements that a rank has, or all of them in a run of one process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from mudd_core.base.types import Array
from mudd_core.checkpoint import dtypes


def is_weight(name: str) -> bool:
    """Return whether a name is a weight; a tensor of the optimizer's state is named `plane/name`."""
    return "/" not in name


@dataclass(frozen=True)
class StatePart:
    """Elements [begin, begin + array.size) of the row-major tensor `name` of shape global_shape.

    A part of a tensor with two or more axes is whole rows (all axes but the last are merged into rows); a part of a
    vector is any range. shared: all ranks of a node share this memory, so only one of them has to read each element.
    optional: a checkpoint that lacks the tensor leaves the part unchanged.
    live: the memory is part of a ParamStore, which releases its reader before it changes; other memory may change at
    any time after the call that returned the part.
    """

    name: str
    global_shape: tuple[int, ...]
    begin: int
    array: Array
    shared: bool = False
    optional: bool = False
    live: bool = False

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
        """The safetensors name of the dtype."""
        name = dtypes.name_of(self.array.dtype)
        assert name is not None
        return name

    @property
    def elements(self) -> int:
        """The number of elements in the whole tensor."""
        return math.prod(self.global_shape)

    @property
    def end(self) -> int:
        """The index after the last element."""
        return self.begin + self.array.size

    @property
    def row(self) -> int:
        """The elements of a row, 1 for a vector."""
        return row_of(self.global_shape)

    @property
    def whole(self) -> bool:
        """Return whether this is the whole tensor."""
        return self.array.size == self.elements

    def cut(self, begin: int, end: int) -> StatePart:
        """Return elements [begin, end) of the tensor, which must be in this part: a view if it is contiguous."""
        if (begin, end) == (self.begin, self.end):
            return self
        inner = self.array.reshape(-1)[begin - self.begin : end - self.begin]
        shape = part_shape(self.global_shape, end - begin)
        array = inner.reshape(shape)
        return StatePart(self.name, self.global_shape, begin, array, self.shared, self.optional, self.live)


def kept_for_reading(parts: Iterable[StatePart]) -> list[StatePart]:
    """Return the parts with copies of all arrays that are not live, so that they may be read while a run continues."""
    return [part if part.live else replace(part, array=part.array.copy()) for part in parts]


@dataclass(frozen=True)
class LaterPart(StatePart):
    """A whole tensor whose elements [begin, end) `make` returns on demand; `array` only has the type and shape."""

    make: Callable[[int, int], Array] = field(kw_only=True)

    def cut(self, begin: int, end: int) -> StatePart:
        """Compute elements [begin, end) of the tensor."""
        made = self.make(begin, end).reshape(part_shape(self.global_shape, end - begin))
        return StatePart(self.name, self.global_shape, begin, made)


# The description of a part: name, dtype, shape of the tensor, begin and end; a description from another rank has lists,
# because it was sent as JSON.
Described = tuple[str, str, list[int], int, int]


def described(part: StatePart) -> Described:
    """Return the description of a part for the other ranks."""
    return part.name, part.dtype, list(part.global_shape), part.begin, part.end


def row_of(shape: tuple[int, ...]) -> int:
    """Return the number of elements in a row of a tensor of this shape; 1 for a vector."""
    return max(1, shape[-1]) if len(shape) > 1 else 1


def part_shape(shape: tuple[int, ...], elements: int) -> tuple[int, ...]:
    """Return the stored shape of a part of `elements` elements: the tensor's own, or [rows, last axis], or [n]."""
    if elements == math.prod(shape):
        return shape
    return (elements // row_of(shape), shape[-1]) if len(shape) > 1 else (elements,)


def whole_tensors(parts: Iterable[StatePart]) -> dict[str, Array]:
    """Return the tensors of a state by name; raise ValueError if this rank has only a part of one."""
    tensors = {}
    for part in parts:
        if not part.whole:
            raise ValueError(
                f"[checkpoint] {part.name}: this rank has elements {part.begin} to {part.end} only"
            )
        tensors[part.name] = part.array
    return tensors
