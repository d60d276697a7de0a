"""Long arrays of integers, in memory or in one file of the cache folder that is read in place.

A file has a header (magic, then width and count of each array), the arrays, and the SHA-256 of everything before it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from mudd_core.base.regular_files import open_regular
from mudd_core.base.types import Array
from mudd_core.data.formats.bounded import BoundedFile

_MAGIC = b"MUDDNUM1"
_DIGEST = 32
_TYPES: dict[int, np.dtype[np.generic]] = {4: np.dtype("<u4"), 8: np.dtype("<i8")}


class Numbers(Protocol):
    """An array that is read in pieces."""

    @property
    def size(self) -> int: ...

    def read(self, first: int, count: int) -> Array:
        """Return `count` elements starting at index `first`, or fewer at the end."""


@dataclass(frozen=True)
class Held:
    """An array in memory."""

    values: Array

    @property
    def size(self) -> int:
        return int(self.values.size)

    def read(self, first: int, count: int) -> Array:
        return self.values[first : first + count]


@dataclass(frozen=True)
class Stored:
    """An array in a file. offset: the offset of its first byte."""

    file: BoundedFile
    offset: int
    size: int
    dtype: np.dtype[np.generic]

    def read(self, first: int, count: int) -> Array:
        width = self.dtype.itemsize
        data = self.file.read(
            self.offset + first * width, min(count, self.size - first) * width, "kept numbers"
        )
        return np.frombuffer(data, self.dtype)


def write(path: Path, arrays: Iterable[Array], count: int) -> None:
    """Write `count` arrays by rename, with only one in memory at a time; raise OSError if the disk rejects it."""
    temporary = path.with_name(f".{path.name}")
    try:
        with open(open_regular(temporary, os.O_RDWR | os.O_CREAT), "r+b") as out:
            out.truncate()
            head = bytearray(_MAGIC.ljust(8 + 16 * count, b"\0"))
            out.write(head)
            for number, array in enumerate(arrays):
                kept = array.view(_TYPES[array.dtype.itemsize])  # valid because no value is negative
                at = 8 + 16 * number
                head[at : at + 16] = np.array([kept.itemsize, kept.size], "<i8").tobytes()
                kept.tofile(out)
                del array, kept  # free the array before the next one is built
            out.seek(0)
            out.write(head)
            out.seek(0)
            out.write(hashlib.file_digest(out, "sha256").digest())
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def opened(path: Path, count: int) -> list[Stored] | None:
    """Return the arrays of a file; None if it does not exist or is damaged."""
    if not path.is_file():
        return None
    return _arrays(BoundedFile(path), count)


def _arrays(file: BoundedFile, count: int) -> list[Stored] | None:
    offset = 8 + 16 * count
    end = file.size - _DIGEST
    if end < offset or file.read(0, 8, "the magic") != _MAGIC:
        return None
    if file.sha256(end) != file.read(end, _DIGEST, "the checksum"):
        return None
    found = []
    for width, size in np.frombuffer(file.read(8, 16 * count, "the head"), "<i8").reshape(-1, 2).tolist():
        found.append(Stored(file, offset, size, _TYPES[width]))
        offset += width * size
    return found if offset == end else None
