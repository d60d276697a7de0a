"""Read a file of untrusted content: each offset and length is checked against the size before it is used."""

from __future__ import annotations

import hashlib
import io
import os
import weakref
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.regular_files import open_binary, open_regular

LONGEST_RECORD = 64 << 20  # bytes of a line or record, decompressed
_EXPANSION = 200  # decompressed bytes for each compressed byte; text has 3 to 20
_FREE = 16 << 20  # decompressed bytes that are always accepted
_BLOCK = 1 << 20  # bytes that are hashed at a time


def expansion_fault(packed: int, unpacked: int) -> str | None:
    """Return the error for a decompressed size that is too large; None if the ratio is plausible for text."""
    if unpacked <= _FREE + _EXPANSION * packed:
        return None
    return (
        f"{packed:,} compressed bytes expand to more than {_FREE >> 20} MiB and {_EXPANSION} times "
        "their size; no text expands like that"
    )


def opened(path: Path) -> BinaryIO:
    """Open a regular file of `data.path` for reading; raise UserError if that fails."""
    try:
        return open_binary(path)
    except OSError as error:
        raise UserError(f"[data.path] cannot read {path}: {error.strerror}") from None


class CappedFile(io.FileIO):
    """A regular file for libraries that trust the size that a file claims: a read returns only bytes that exist."""

    def __init__(self, path: Path) -> None:
        try:
            super().__init__(open_regular(path), "rb")
        except OSError as error:
            raise UserError(f"[data.path] cannot read {path}: {error.strerror}") from None
        self._size = os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most `size` bytes from the current position, or all if it is negative."""
        there = max(0, self._size - self.tell())
        return super().read(there if size is None or size < 0 else min(size, there)) or b""


class BoundedFile:
    """A regular file, read by offset. Raise UserError if it cannot be opened; OSError if a run `reads_again`."""

    def __init__(self, path: Path, *, reads_again: bool = False) -> None:
        self.path = path
        try:
            self._file = open_regular(path)
        except OSError as error:
            if reads_again:
                raise
            raise UserError(f"[data.path] cannot read {path}: {error.strerror}") from None
        # Runs keep their files open and drop them; an integer descriptor does not close itself.
        self._close = weakref.finalize(self, os.close, self._file)
        self.size = os.fstat(self._file).st_size

    def read(self, offset: int, count: int, what: str) -> bytes:
        """Return `count` bytes; raise FormatError if the file is too short. what: their meaning, for the message."""
        if offset < 0 or count < 0 or count > self.size - offset:
            raise self.fault(offset, f"expected {count} bytes of {what}, got {max(0, self.size - offset)}")
        parts = bytearray()
        while len(parts) < count:  # the system may return fewer bytes than requested
            part = os.pread(self._file, min(count - len(parts), 1 << 30), offset + len(parts))
            if not part:
                raise self.fault(offset + len(parts), "file shrank while it was read")
            if len(part) == count:
                return part
            parts += part
        return bytes(parts)

    def sha256(self, end: int | None = None) -> bytes:
        """Return the SHA-256 of the file, or of its first `end` bytes; raise FormatError if it is too short."""
        digest, end = hashlib.sha256(), self.size if end is None else end
        for at in range(0, end, _BLOCK):
            digest.update(self.read(at, min(_BLOCK, end - at), "content"))
        return digest.digest()

    def fault(self, offset: int, reason: str) -> FormatError:
        """Return the error of this file at this offset."""
        return FormatError(str(self.path), max(0, offset), reason)

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._close()
        self._file = -1

    def __enter__(self) -> BoundedFile:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()
