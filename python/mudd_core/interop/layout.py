"""How a tensor of an original program lies in ours: the same numbers in another order, so gradients map alike."""

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
    """One parameter of ours as a part of one tensor of theirs.

    ours = theirs.reshape(view)[index].transpose(axes).reshape(shape of ours) * factor + offset. view: None keeps their
    shape. index: ints and slices, e.g. the layer of a stack. axes: None keeps the order. factor: of ours, for a
    constant that they multiply elsewhere. offset: constant that ours has on top, 1 for a gain that they store as
    gain - 1. Two entries of the same `ours` are one shared parameter. part: the entry is of ours[part] only (a matrix
    of a stack).
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
        """Our tensor, or our part, as float32 out of theirs. shape: ours. ValueError if the sizes do not fit."""
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
        """Writes our tensor, or our part, into its place in theirs (contiguous)."""
        viewed = theirs if self.view is None else theirs.reshape(self.view)
        part = viewed[self.index]
        axes = self.axes or tuple(range(part.ndim))
        turned = ours.reshape(tuple(part.shape[axis] for axis in axes)).transpose(np.argsort(axes))
        if gradient:  # of theirs = (ours - offset) / factor
            viewed[self.index] = turned * np.float32(self.factor)
        else:
            viewed[self.index] = (turned - np.float32(self.offset)) / np.float32(self.factor)


def to_ours(
    entries: Iterable[Entry], weights: Mapping[str, AnyTensor], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, StoredTensor]:
    """Our tensors (float32) by name, each made when it is asked for; of theirs one at a time is read, too.

    Those that are made of one tensor of theirs follow each other, so that it is read once. shapes: ours by name.
    ValueError names what is missing, left over or contradictory.
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
    """One tensor of ours out of its entries; ValueError for a number that is not finite."""
    ours: Array | None = None
    for entry in entries:
        array = entry.read_ours(reader.array(entry.theirs), shape)
        if entry.part is not None:
            ours = np.full(shape, np.nan, np.float32) if ours is None else ours
            ours[entry.part] = array
        elif ours is None:
            ours = array
        elif not np.array_equal(ours, array):
            raise ValueError(f"[interop] weights: '{entry.theirs}' differs from what '{name}' is tied to")
    assert ours is not None
    _require_finite(name, ours)
    return ours


def _require_finite(name: str, values: Array) -> None:
    """ValueError with the first weight that is NaN or infinite: no step of a training would have a loss."""
    finite = np.isfinite(values.reshape(-1))
    if not finite.all():
        first = int(np.flatnonzero(~finite)[0])
        raise ValueError(
            f"[interop] weights: '{name}': expected finite numbers, got {values.reshape(-1)[first]} at element "
            f"{first:,} ({np.count_nonzero(~finite):,} in all); the file is damaged, or its training had diverged"
        )


class _LastRead:
    """Arrays of tensors; the last one is kept."""

    def __init__(self, tensors: Mapping[str, AnyTensor]) -> None:
        self._tensors = tensors
        self._name = ""
        self._array: Array | None = None

    def array(self, name: str) -> Array:
        """Read a tensor, unless it is the last one."""
        if self._array is None or name != self._name:
            self._array = None  # before the next one takes memory
            self._name, self._array = name, widened(np.asarray(self._tensors[name]))
        return self._array


class TheirTensors(Mapping[str, Array]):
    """Tensors of an original program (float32) by name, made out of ours when they are asked for.

    shapes: theirs by name.
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
    """Gradients by their tensors (float32), by name. shapes: theirs by name."""
    theirs = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    for entry in entries:
        gradient = ours[entry.ours]
        own = gradient if entry.part is None else gradient[entry.part]
        entry.write_theirs(own, theirs[entry.theirs], gradient=True)
    return theirs
