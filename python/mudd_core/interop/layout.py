"""How a tensor of an original program lies in ours: the same numbers in another order, so gradients map alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from mudd_core.base.types import Array

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
        """Writes our tensor into its place in theirs (contiguous)."""
        viewed = theirs if self.view is None else theirs.reshape(self.view)
        part = viewed[self.index]
        axes = self.axes or tuple(range(part.ndim))
        ours = ours if self.part is None else ours[self.part]
        turned = ours.reshape(tuple(part.shape[axis] for axis in axes)).transpose(np.argsort(axes))
        if gradient:  # of theirs = (ours - offset) / factor
            viewed[self.index] = turned * np.float32(self.factor)
        else:
            viewed[self.index] = (turned - np.float32(self.offset)) / np.float32(self.factor)


def to_ours(
    entries: Iterable[Entry], weights: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Array]:
    """Our tensors by name. shapes: ours by name. ValueError names what is missing, left over or contradictory."""
    ours: dict[str, Array] = {}
    used: set[str] = set()
    for entry in entries:
        if entry.theirs not in weights:
            raise ValueError(f"[interop] weights: '{entry.theirs}' is missing (needed for '{entry.ours}')")
        used.add(entry.theirs)
        array = entry.read_ours(np.asarray(weights[entry.theirs]), shapes[entry.ours])
        if entry.part is not None:
            stack = ours.setdefault(entry.ours, np.full(shapes[entry.ours], np.nan, np.float32))
            stack[entry.part] = array
            continue
        if entry.ours in ours and not np.array_equal(ours[entry.ours], array):
            raise ValueError(
                f"[interop] weights: '{entry.theirs}' differs from what '{entry.ours}' is tied to"
            )
        ours[entry.ours] = array
    missing = sorted(set(shapes) - set(ours))
    if missing:
        raise ValueError(f"[interop] parameters: nothing in the original maps to '{missing[0]}'")
    extra = sorted(set(weights) - used)
    if extra:
        raise ValueError(
            f"[interop] weights: '{extra[0]}' has no place in this model ({len(extra)} left over); "
            "does the config belong to these weights?"
        )
    return ours


def to_theirs(
    entries: Iterable[Entry],
    ours: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
    *,
    gradient: bool = False,
) -> dict[str, Array]:
    """Their tensors (float32) by name. shapes: theirs by name."""
    theirs = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    for entry in entries:
        entry.write_theirs(ours[entry.ours], theirs[entry.theirs], gradient=gradient)
    return theirs
