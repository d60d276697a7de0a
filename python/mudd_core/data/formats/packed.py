"""Read files compressed by gzip or zstd as a stream, in bounded memory."""

from __future__ import annotations

import gzip
import io
import shlex
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.packages import needed
from mudd_core.data.formats.bounded import expansion_fault, opened

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from zstandard import ZstdDecompressor

_ZSTD_INPUT = 1 << 10  # bytes of one read: a block of four bytes may become 128 KiB
_BUFFER = 1 << 16
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# pzstd writes a skippable frame first; the first byte of that frame is in this range.
_SKIPPABLE = b"\x2a\x4d\x18", range(0x50, 0x60)
_ZSTD_WINDOW_LOG = (
    27  # log2 of the largest accepted window in bytes, because the decompressor allocates the window
)
_ZSTD_HEADER = 18  # bytes of the longest possible frame header
_ZSTD_CHECKSUM = 1 << 2  # bit of the frame descriptor, the byte after the magic number


class _Zstd(io.RawIOBase):
    """Frames of zstd, decompressed while they are read. Raise EOFError if the last one is truncated."""

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
    """The decompressed bytes of a file. Raise FormatError if they expand more than text does."""

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
            cure = f"unpack it ({unpacking(self._path)}) and name the unpacked file"
            raise FormatError(str(self._path), self._file.tell(), f"{fault}; {cure}")
        return count


def _is_skippable(head: bytes) -> bool:
    """Return whether a zstd frame has no text."""
    tail, first = _SKIPPABLE
    return len(head) > 3 and head[0] in first and head[1:4] == tail


def packing_of(head: bytes) -> str | None:
    """Return `gzip` or `zstd` by the first four bytes of a file; None for any other file."""
    if head.startswith(_GZIP):
        return "gzip"
    return "zstd" if head[:4] == _ZSTD or _is_skippable(head) else None


def _first_frame(file: BinaryIO) -> bytes:
    """Return the header of the first frame that has text, or the first bytes of a file without frames.

    The file position is 0 before and after the call.
    """
    while _is_skippable(head := file.read(8)) and len(head) == 8:
        file.seek(int.from_bytes(head[4:], "little"), 1)
    head += file.read(_ZSTD_HEADER - len(head))
    file.seek(0)
    return head


def is_packed(path: Path) -> bool:
    """Return whether a file is compressed, so that its lines can only be read in order."""
    with opened(path) as file:
        return packing_of(file.read(4)) is not None


def lacks_checksum(path: Path) -> bool:
    """Return whether the first frame of a .zst file has no checksum, so that damage in it may go unnoticed."""
    with opened(path) as file:
        head = _first_frame(file)
    return head[:4] == _ZSTD and len(head) >= 5 and not head[4] & _ZSTD_CHECKSUM


def unpacking(path: Path) -> str:
    """Return the command that decompresses a file next to it."""
    program = "zstd -d" if path.suffix.lower() == ".zst" else "gunzip -k"
    return f"{program} {shlex.quote(path.name)}"


def conversion(path: Path) -> str:
    """Return the command that converts a plain Latin-1 file; empty for a compressed file."""
    if is_packed(path):
        return ""
    name, new = shlex.quote(str(path)), shlex.quote(f"{path.with_suffix('')}.utf8{path.suffix}")
    return f"; if the file is Latin-1, type `iconv -f LATIN1 -t UTF-8 {name} > {new}` and name the new file"


def unpacked(path: Path, file: BinaryIO) -> BinaryIO:
    """Return a file's decompressed bytes, or a plain file unchanged. Raise UserError if zstandard is missing."""
    packing = packing_of(file.read(4))
    file.seek(0)
    stream: io.RawIOBase | gzip.GzipFile
    if packing is None:
        return file
    if packing == "gzip":
        stream = gzip.GzipFile(fileobj=file)
    else:
        zstandard = needed("zstandard", f"[data] {path}", "to read files compressed by zstd")
        _require_window(path, _first_frame(file))
        stream = _Zstd(file, zstandard.ZstdDecompressor(max_window_size=1 << _ZSTD_WINDOW_LOG))
    return cast(BinaryIO, io.BufferedReader(_Limited(path, file, stream), _BUFFER))


def _require_window(path: Path, head: bytes) -> None:
    """Raise UserError with the decompression command for a frame of `zstd --long`."""
    import zstandard

    try:
        window = zstandard.get_frame_parameters(head).window_size
    except zstandard.ZstdError:  # reading the file reports the error
        return
    if window > 1 << _ZSTD_WINDOW_LOG:
        log = (window - 1).bit_length()
        plain = path.name.removesuffix(".zst")
        raise UserError(
            f"[data.path] {path}: expected a zstd window of at most {1 << _ZSTD_WINDOW_LOG - 20} MiB, got "
            f"{window >> 20:,} MiB; unpack it: zstd -d --long={log} {shlex.quote(str(path))}, then name {plain}"
        )


@contextmanager
def damage_of_packing(path: Path) -> Iterator[None]:
    """Raise FormatError for the errors of the decompressors."""
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
    if "too much memory" in str(error):  # for a frame after the first one
        cure = f"zstd -d --long=31 {shlex.quote(str(path))}"
        return FormatError(
            str(path), 0, f"a frame has a window of more than 128 MiB; unpack the file: {cure}"
        )
    return FormatError(str(path), 0, f"the compressed data are damaged: {error}")
