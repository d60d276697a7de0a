"""The mapping of an original program's tensors to mudd_core's.

The elements are the same in another order, so gradients have the same mapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mudd_core.base.types import Array
from mudd_core.checkpoint import dtypes
from mudd_core.checkpoint.stored import AnyTensor, StoredTensor, made_tensor
from mudd_core.checkpoint.weights import widened

Index = tuple[int | slice, ...]


@dataclass(frozen=True)
class Entry:
    """The place of a mudd_core parameter (`ours`) in a tensor of the original program (`theirs`).

    `ours = theirs.reshape(view)[index].transpose(axes).reshape(shape of ours) * factor + offset`

    view: None keeps the shape of the original tensor. index: integers and slices, such as the layer in a stack. axes:
    None keeps the order. factor: a constant by which the original multiplies elsewhere. offset: a constant that
    mudd_core adds, 1 for a gain that the original stores as gain - 1. part: the entry is only the slice `ours[part]`,
    one matrix of a stack. Two entries with the same parameter and no part are tied tensors.
    """

    ours: str
    theirs: str
    view: tuple[int, ...] | None = None
    index: Index = ()
    axes: tuple[int, ...] | None = None
    offset: float = 0.0
    part: int | None = None
    factor: float = 1.0

    def read_ours(self, theirs: Array, shape: tuple[int, ...]) -> Array:
        """Return the parameter, or its slice, as float32 from the original's tensor. shape: of the whole parameter.

        Raise ValueError if the sizes do not fit.
        """
        shape = shape if self.part is None else shape[1:]
        viewed = theirs if self.view is None else theirs.reshape(self.view)
        part = viewed[self.index]
        turned = part if self.axes is None else part.transpose(self.axes)
        if turned.size != int(np.prod(shape)):
            raise ValueError(
                f"[interop] {self.theirs}: expected {int(np.prod(shape))} elements for '{self.ours}', "
                f"got shape {theirs.shape}"
            )
        ours = np.ascontiguousarray(turned.reshape(shape), dtype=np.float32)
        ours = ours if self.factor == 1 else ours * np.float32(self.factor)
        return ours + np.float32(self.offset) if self.offset else ours

    def write_theirs(self, ours: Array, theirs: Array, *, gradient: bool = False) -> None:
        """Write the parameter, or its slice, into its place in the original's tensor, which is contiguous."""
        viewed = theirs if self.view is None else theirs.reshape(self.view)
        part = viewed[self.index]
        axes = self.axes or tuple(range(part.ndim))
        turned = ours.reshape(tuple(part.shape[axis] for axis in axes)).transpose(np.argsort(axes))
        if gradient:  # the gradient of the original = (parameter - offset) / factor
            viewed[self.index] = turned * np.float32(self.factor)
        else:
            viewed[self.index] = (turned - np.float32(self.offset)) / np.float32(self.factor)


def to_ours(
    entries: Iterable[Entry], weights: Mapping[str, AnyTensor], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, StoredTensor]:
    """Return the mudd_core tensors (float32) by name; each is computed when it is read.

    Parameters from the same original tensor are consecutive in the result, so that one tensor at a time is read, and
    only once. shapes: the shapes of the mudd_core parameters. Raise ValueError, with the name, if a tensor is missing,
    unused or contradictory.
    """
    parts: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.theirs not in weights:
            raise ValueError(f"[interop] weights: '{entry.theirs}' is missing (needed for '{entry.ours}')")
        parts.setdefault(entry.ours, []).append(entry)
    if missing := sorted(set(shapes) - set(parts)):
        raise ValueError(f"[interop] parameters: nothing in the original maps to '{missing[0]}'")
    if extra := sorted(set(weights) - {entry.theirs for found in parts.values() for entry in found}):
        raise ValueError(
            f"[interop] weights: '{extra[0]}' has no place in this model ({len(extra)} left over); "
            "does the config belong to these weights?"
        )
    reader = _LastRead(weights)
    by_theirs: dict[str, list[str]] = {}
    for name, found in parts.items():
        by_theirs.setdefault(found[0].theirs, []).append(name)
    return {
        name: made_tensor(
            shapes[name], np.float32, partial(_our_tensor, name, parts[name], reader, shapes[name])
        )
        for names in by_theirs.values()
        for name in names
    }


def _our_tensor(name: str, entries: Sequence[Entry], reader: _LastRead, shape: tuple[int, ...]) -> Array:
    """Return one mudd_core tensor from its entries. Raise ValueError if an element is not finite."""
    ours: Array | None = None
    for entry in entries:
        array = entry.read_ours(reader.array(entry.theirs), shape)
        if entry.part is not None:
            ours = np.full(shape, np.nan, np.float32) if ours is None else ours
            ours[entry.part] = array
        elif ours is None:
            ours = array
        elif not np.array_equal(ours, array):
            raise ValueError(
                f"[interop] weights: '{entry.theirs}' differs from the tensor that '{name}' is tied to"
            )
    assert ours is not None
    _require_finite(name, ours)
    return ours


def _require_finite(name: str, values: Array) -> None:
    """Raise ValueError, with the first element that is NaN or infinite: no training step could have a loss."""
    finite = np.isfinite(values.reshape(-1))
    if not finite.all():
        first = int(np.flatnonzero(~finite)[0])
        raise ValueError(
            f"[interop] weights: '{name}': expected finite numbers, got {values.reshape(-1)[first]} at element "
            f"{first:,} ({np.count_nonzero(~finite):,} in all); the file is damaged, or its training had diverged"
        )


class _LastRead:
    """A mapping of names to arrays that keeps the array read last."""

    def __init__(self, tensors: Mapping[str, AnyTensor]) -> None:
        self._tensors = tensors
        self._name = ""
        self._array: Array | None = None

    def array(self, name: str) -> Array:
        """Read a tensor, unless it was read last."""
        if self._array is None or name != self._name:
            self._array = None  # freed before the next one is allocated
            self._name, self._array = name, widened(np.asarray(self._tensors[name]))
        return self._array


class TheirTensors(Mapping[str, Array]):
    """The tensors of an original program (float32) by name, each computed from mudd_core's when it is read.

    shapes: the shapes of the original's tensors.
    """

    def __init__(
        self, entries: Iterable[Entry], ours: Mapping[str, AnyTensor], shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        self.shapes = dict(shapes)
        self._ours = ours
        self._entries: dict[str, list[Entry]] = {name: [] for name in shapes}
        for entry in entries:
            self._entries[entry.theirs].append(entry)

    def __getitem__(self, name: str) -> Array:
        theirs = np.zeros(self.shapes[name], np.float32)
        for entry in self._entries[name]:
            tensor = self._ours[entry.ours]
            ours = np.asarray(tensor if entry.part is None else tensor[entry.part])
            entry.write_theirs(dtypes.as_float32(ours), theirs)
        return theirs

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def their_gradients(
    entries: Iterable[Entry], ours: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Array]:
    """Return the gradients (float32) by the names of the original's tensors.

    shapes: the shapes of the original's tensors.
    """
    theirs = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    for entry in entries:
        gradient = ours[entry.ours]
        own = gradient if entry.part is None else gradient[entry.part]
        entry.write_theirs(own, theirs[entry.theirs], gradient=True)
    return theirs
