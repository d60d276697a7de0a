"""Files compressed by gzip or zstd, read as a stream in bounded memory."""

from __future__ import annotations

import gzip
import io
import shlex
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from mudd_core.base.errors import FormatError
from mudd_core.base.packages import needed
from mudd_core.data.formats.bounded import expansion_fault, opened

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from zstandard import ZstdDecompressor

_ZSTD_INPUT = 1 << 10  # bytes at a time: a block of four bytes may become 128 KiB
_BUFFER = 1 << 16
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_ZSTD_CHECKSUM = 1 << 2  # in the descriptor of a frame, the byte after its magic number


class _Zstd(io.RawIOBase):
    """Frames of zstd, decompressed as they are read. EOFError if the last one is cut."""

    def __init__(self, file: BinaryIO, decompressor: ZstdDecompressor) -> None:
        super().__init__()
        self._file, self._decompressor = file, decompressor
        self._frame, self._rest, self._ready = decompressor.decompressobj(), b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, out: WriteableBuffer) -> int:
        while not self._ready:
            if self._frame.eof:
                self._rest = self._frame.unused_data
            data = self._rest or self._file.read(_ZSTD_INPUT)
            self._rest = b""
            if not data:
                if not self._frame.eof:
                    raise EOFError("the file ends within a frame of zstd")
                return 0
            if self._frame.eof:
                self._frame = self._decompressor.decompressobj()
            self._ready = memoryview(self._frame.decompress(data))
        room = memoryview(out)
        count = min(len(room), len(self._ready))
        room[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


class _Limited(io.RawIOBase):
    """Decompressed bytes of a file. FormatError where they expand more than text does."""

    def __init__(self, path: Path, file: BinaryIO, stream: io.RawIOBase | gzip.GzipFile) -> None:
        super().__init__()
        self._path, self._file, self._stream = path, file, stream
        self._count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, out: WriteableBuffer) -> int:
        count = int(self._stream.readinto(out))
        self._count += count
        if (fault := expansion_fault(self._file.tell(), self._count)) is not None:
            cure = f"unpack it ({unpacking(self._path)}) and name the plain file"
            raise FormatError(str(self._path), self._file.tell(), f"{fault}; {cure}")
        return count


def packing_of(head: bytes) -> str | None:
    """`gzip` or `zstd` by the first four bytes of a file, None for another."""
    return "gzip" if head.startswith(_GZIP) else "zstd" if head[:4] == _ZSTD else None


def is_packed(path: Path) -> bool:
    """Whether a file is compressed, so that its lines can be read in order alone."""
    with opened(path) as file:
        return packing_of(file.read(4)) is not None


def lacks_checksum(path: Path) -> bool:
    """Whether the first frame of a .zst file has no checksum, so that damage in it can go unnoticed."""
    with opened(path) as file:
        head = file.read(5)
    return packing_of(head) == "zstd" and len(head) == 5 and not head[4] & _ZSTD_CHECKSUM


def unpacking(path: Path) -> str:
    """The command that unpacks a file beside it."""
    program = "zstd -d" if path.suffix.lower() == ".zst" else "gunzip -k"
    return f"{program} {shlex.quote(path.name)}"


def unpacked(path: Path, file: BinaryIO) -> BinaryIO:
    """The decompressed bytes of a file, or those of a plain one. UserError if zstandard is missing."""
    packing = packing_of(file.read(4))
    file.seek(0)
    stream: io.RawIOBase | gzip.GzipFile
    if packing is None:
        return file
    if packing == "gzip":
        stream = gzip.GzipFile(fileobj=file)
    else:
        zstandard = needed("zstandard", f"[data] {path}", "to read files compressed by zstd")
        stream = _Zstd(file, zstandard.ZstdDecompressor(max_window_size=1 << 27))
    return cast(BinaryIO, io.BufferedReader(_Limited(path, file, stream), _BUFFER))


@contextmanager
def damage_of_packing(path: Path) -> Iterator[None]:
    """Raise FormatError for what the decompressors raise."""
    try:
        yield
    except (EOFError, zlib.error) as error:
        raise _damaged(path, error) from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise _damaged(path, error) from None
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> FormatError:
    return FormatError(str(path), 0, f"the compressed data are damaged: {error}")
