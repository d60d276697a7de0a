"""Lines of JSON objects (.jsonl, .json of C4), plain or compressed by gzip or zstd."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from mudd_core.base.errors import FormatError
from mudd_core.base.packages import needed
from mudd_core.data.formats.bounded import opened
from mudd_core.data.formats.format import Columns, Format, Record, Value, require_columns

LONGEST_LINE = 256 << 20  # bytes, after decompression
_ZSTD_INPUT = 1 << 10  # bytes at a time: a block of four bytes may become 128 KiB
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class _Zstd(io.RawIOBase):
    """Frames of zstd, decompressed as they are read. EOFError if the last one is cut."""

    def __init__(self, file: BinaryIO, decompressor: Any) -> None:
        super().__init__()
        self._file, self._decompressor = file, decompressor
        self._frame, self._rest, self._ready = decompressor.decompressobj(), b"", memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, out: Any) -> int:
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
        count = min(len(out), len(self._ready))
        out[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


def is_packed(path: Path) -> bool:
    """Whether a file is compressed, so that its lines can be read in order alone."""
    with opened(path) as file:
        head = file.read(4)
    return head.startswith(_GZIP) or head == _ZSTD


def _unpacked(path: Path, file: BinaryIO) -> BinaryIO:
    """The bytes of the lines; UserError if zstandard is missing."""
    head = file.read(4)
    file.seek(0)
    if head.startswith(_GZIP):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if head == _ZSTD:
        zstandard = needed("zstandard", f"[data] {path}", "to read files compressed by zstd")
        return cast(
            BinaryIO, io.BufferedReader(_Zstd(file, zstandard.ZstdDecompressor(max_window_size=1 << 27)))
        )
    return file


def _lines(path: Path) -> Iterator[bytes]:
    with opened(path) as file, _unpacked(path, file) as lines:
        try:
            while line := lines.readline(LONGEST_LINE + 1):
                if len(line) > LONGEST_LINE:
                    raise FormatError(str(path), 0, f"a line has more than {LONGEST_LINE} bytes")
                yield line
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


def _object(line: bytes, path: Path, number: int, offset: int) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        reason = error.reason if isinstance(error, UnicodeDecodeError) else str(error)
        raise FormatError(str(path), offset, f"line {number + 1} is not JSON: {reason}") from None
    if not isinstance(value, dict):
        raise FormatError(
            str(path), offset, f"line {number + 1}: expected an object, got {type(value).__name__}"
        )
    return value


def _value(value: Any, where: str, path: Path, offset: int) -> Value | None:
    """A text or a list of numbers; None for what no pipeline reads."""
    if isinstance(value, str):
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise FormatError(str(path), offset, f"{where} holds half a surrogate")
        return value
    if isinstance(value, list) and all(type(v) is int and abs(v) < 1 << 63 for v in value):
        return np.array(value, np.int64)
    return None


def records(path: Path, columns: Columns) -> Iterator[Record]:
    """The objects of a file, empty lines left out. Offsets in messages count decompressed bytes."""
    offset = 0
    first = True
    for number, line in enumerate(_lines(path)):
        if line.strip():
            members = _object(line, path, number, offset)
            if first:
                require_columns(path, columns, list(members))
                first = False
            yield _chosen(members, columns, path, number, offset)
        offset += len(line)


def record_of(line: bytes, columns: Columns, path: Path, number: int, offset: int) -> Record:
    """The object of one line; number, offset: for messages."""
    return _chosen(_object(line, path, number, offset), columns, path, number, offset)


def _chosen(members: dict[str, Any], columns: Columns, path: Path, number: int, offset: int) -> Record:
    record: dict[str, Value] = {}
    for name in members if columns is None else columns:
        where = f"line {number + 1}: member {name!r}"
        if name not in members:
            raise FormatError(str(path), offset, f"{where} is missing")
        value = _value(members[name], where, path, offset)
        if value is not None:
            record[name] = value
        elif columns is not None:
            raise FormatError(str(path), offset, f"{where}: expected text or a list of whole numbers")
    return record


def _is_start(head: bytes) -> bool:
    """An object that a line holds whole, or the beginning of a long one of those that C4 has."""
    line, end, _ = head.partition(b"\n")
    if not end:
        return head.startswith((b'{"text"', b'{"id"', b'{"input_ids"'))
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


_PLAIN = (".jsonl", ".ndjson")
ENDINGS = (*_PLAIN, *(name + packed for name in (*_PLAIN, ".json") for packed in (".gz", ".zst")))
FORMAT = Format("jsonl", ENDINGS, _is_start, records)
