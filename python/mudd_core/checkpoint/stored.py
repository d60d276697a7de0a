"""A tensor that stays in its file until its elements are requested, so that a model is read one tensor at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import FormatError
from mudd_core.base.types import Array, Float32
from mudd_core.checkpoint import dtypes
from mudd_core.checkpoint.manifest import Manifest
from mudd_core.checkpoint.read import fill_range
from mudd_core.checkpoint.state_part import LaterPart, StatePart


@dataclass(frozen=True)
class Place:
    """The location of a whole tensor in a file, starting at byte `begin`."""

    file: Path
    begin: int


class StoredTensor:
    """The shape and dtype of a tensor in a file. np.asarray() reads it each time, and tensor[i] reads a part of it.

    read: returns elements [begin, end) of the row-major tensor. place: None if it is in several pieces, or computed.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        read: Callable[[int, int], Array],
        place: Place | None = None,
    ) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.place = place
        self._read = read

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def elements(self, begin: int, end: int) -> Array:
        """Return elements [begin, end) of the row-major tensor in new memory."""
        return self._read(begin, end)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        """Return all elements in new memory."""
        found = self._read(0, self.size).reshape(self.shape)
        return found if dtype is None else found.astype(dtype, copy=False)

    def __getitem__(self, index: int) -> Array:
        """Return the part at `index` of the first axis."""
        size = self.size // self.shape[0]
        return self._read(index * size, (index + 1) * size).reshape(self.shape[1:])


def made_tensor(shape: tuple[int, ...], dtype: npt.DTypeLike, make: Callable[[], Array]) -> StoredTensor:
    """Return a tensor that `make` computes as a whole each time that elements of it are requested."""
    return StoredTensor(shape, dtype, lambda begin, end: make().reshape(-1)[begin:end])


AnyTensor: TypeAlias = "Array | StoredTensor"


def float32_of(tensor: AnyTensor) -> Float32:
    """Return all elements of a tensor as float32; exact for BF16 and F16."""
    return dtypes.as_float32(np.asarray(tensor))


def whole_parts(tensors: Mapping[str, AnyTensor]) -> list[StatePart]:
    """Return every tensor as one part; a tensor in a file stays there until it is written or hashed."""
    return [_whole(name, tensor) for name, tensor in tensors.items()]


def _whole(name: str, tensor: AnyTensor) -> StatePart:
    if not isinstance(tensor, StoredTensor):
        return StatePart(name, np.shape(tensor), 0, tensor)
    nothing = np.broadcast_to(np.zeros((), tensor.dtype), tensor.shape)
    return LaterPart(name, tensor.shape, 0, nothing, make=tensor.elements)


def stored_tensors(folder: Path, manifest: Manifest) -> dict[str, StoredTensor]:
    """Return the tensors of a verified step; every block's checksum is checked again on reading."""
    kinds = {name: dtypes.numpy_dtype(about.dtype) for name, about in manifest.tensors.items()}
    return {name: _stored(folder, manifest, name, kind) for name, kind in kinds.items() if kind is not None}


def _stored(folder: Path, manifest: Manifest, name: str, dtype: npt.DTypeLike) -> StoredTensor:
    about = manifest.tensors[name]

    def read(begin: int, end: int) -> Array:
        out = np.empty(end - begin, dtype)
        try:
            fill_range(folder, name, about, out, begin)
        except OSError as error:
            raise FormatError(str(error.filename or folder), 0, error.strerror or str(error)) from error
        return out

    pieces = about.slices
    place = Place(folder / pieces[0].file, pieces[0].begin) if len(pieces) == 1 else None
    return StoredTensor(about.shape, dtype, read, place)
