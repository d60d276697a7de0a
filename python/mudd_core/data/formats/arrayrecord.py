"""ArrayRecord files, read with the package array_record, which verifies their hashes; records are tf.train.Examples.

Their container is Riegeli, whose chunks are counted here by their headers only. A block of 64 KiB starts with a header
of 24 bytes, which may interrupt a chunk. A chunk is a header of 40 bytes (hash, size of the data, hash of the data,
type and number of records, decoded size) and its data.
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from mudd_core.base.errors import FormatError, in_one_line
from mudd_core.base.framing import varint
from mudd_core.base.packages import needed
from mudd_core.base.types import Int64
from mudd_core.data.formats.bounded import BoundedFile, expansion_fault
from mudd_core.data.formats.format import FAIL, BadRecords, ByNumber, Columns, Format, Record, Value
from mudd_core.data.formats.tfrecord import example_of, feature_of

# The first 64 bytes of every file: an empty chunk of type `s`, after the headers of the block and of the chunk.
_SIGNATURE = bytes.fromhex("83af70d10d884a3f0000000000000000400000000000000091bac23c9287e1a9")
# The mark of the last block, which has the position of the index. The package reads a file without it as empty.
_INDEX_MARK = varint(0x71930E704FDAE05E)

_FOOT = 2  # chunks after the records: the index, and its position
_AT_ONCE = 64  # records that are read in one call
_PLACE = re.compile(r"at byte (\d+)")
BLOCK_BYTES = 1 << 16
_BLOCK_HEADER = 24
_HEADER = struct.Struct("<5Q")
_READ_BYTES = 4096  # bytes in one read: small chunks are consecutive, and large ones need one read each

_FIRST_CHUNK, _METADATA, _PADDING = b"smp"

_RECORDS = b"rt"


class _Package(Protocol):
    """The reader class of the package."""

    def num_records(self) -> int: ...
    def read(self, numbers: list[int]) -> list[bytes]: ...
    def close(self) -> None: ...


def open_file(path: Path) -> _Package:
    """Return the package's reader; raise FormatError for a damaged file."""
    module = needed("array_record.python.array_record_module", f"[data] {path}", "to read ArrayRecord files")
    with BoundedFile(path) as file:  # the package does not say why it cannot open a file
        if file.size < BLOCK_BYTES or file.read(0, len(_SIGNATURE), "the head") != _SIGNATURE:
            raise file.fault(0, "expected an ArrayRecord file, got other bytes or a truncated file")
        last = max(0, file.size - BLOCK_BYTES)
        if _INDEX_MARK not in file.read(last, file.size - last, "the last block"):
            raise file.fault(
                last, "the last block has no index: the file was truncated, or its writer was not closed"
            )
    try:
        reader: _Package = module.ArrayRecordReader(str(path))
    except RuntimeError as error:
        raise _damaged(path, error) from None
    return reader


def counted(reader: _Package, path: Path) -> int:
    """Return the number of records; raise FormatError unless the index and the chunks agree on it.

    The package reads a file with a damaged index as one without records.
    """
    with BoundedFile(path) as file:
        counts = [chunk.count for chunk in record_chunks(file)]
    by_chunks = sum(counts[:-_FOOT])
    by_index = reader.num_records()
    if len(counts) < _FOOT or by_chunks != by_index:
        reason = f"the index names {by_index} records and the chunks have {by_chunks}: the file is damaged"
        raise FormatError(str(path), 0, reason)
    return by_index


def payloads(path: Path) -> Iterator[bytes]:
    """Yield the records of a file in order."""
    reader = open_file(path)
    try:
        count = counted(reader, path)
        for first in range(0, count, _AT_ONCE):
            yield from reader.read(list(range(first, min(first + _AT_ONCE, count))))
    except (RuntimeError, IndexError) as error:
        if isinstance(error, FormatError):
            raise
        raise _damaged(path, error) from None
    finally:
        with contextlib.suppress(RuntimeError):  # close() repeats the error of the failed read
            reader.close()


def read_at(reader: _Package, path: Path, numbers: list[int]) -> list[bytes]:
    """Return records of an open file by their indices."""
    try:
        return reader.read(numbers)
    except (RuntimeError, IndexError) as error:
        raise _damaged(path, error) from None


def records(path: Path, columns: Columns, bad: BadRecords = FAIL) -> Iterator[Record]:
    """Yield the Examples of a file."""
    for number, payload in enumerate(payloads(path)):
        try:
            record = example_of(payload, columns, path, 0, number)
        except FormatError as error:
            bad.found(error)
        else:
            yield record


def _damaged(path: Path, error: Exception) -> FormatError:
    text = in_one_line(error)
    place = _PLACE.search(text)
    reason = f"array_record cannot read it: {text[:200] or 'its index is damaged'}"
    return FormatError(str(path), int(place[1]) if place else 0, reason)


def _places_of_array(path: Path) -> Int64:
    reader = open_file(path)
    count = counted(reader, path)
    reader.close()
    return np.stack([np.arange(count), np.zeros(count)], axis=1).astype(np.int64)


class _Array:
    """An open ArrayRecord file, read by record index."""

    def __init__(self, path: Path, column: str) -> None:
        self._path, self._column, self._reader = path, column, open_file(path)

    def read(self, places: Int64, numbers: Int64) -> list[Value | None]:
        found = read_at(self._reader, self._path, places[:, 0].tolist())
        return [
            feature_of(payload, self._column, self._path, 0, int(number))
            for payload, number in zip(found, numbers, strict=True)
        ]


FORMAT = Format(
    "arrayrecord",
    (".arrayrecord",),
    lambda head: head.startswith(_SIGNATURE),
    records,
    by_number=ByNumber(_places_of_array, _Array),
)


@dataclass(frozen=True)
class Chunk:
    """A chunk of records. begin: its offset. count: the number of records in its header."""

    begin: int
    count: int


def record_chunks(file: BoundedFile) -> Iterator[Chunk]:
    """Yield the chunks of records in a file; raise FormatError unless the chunks fill the file."""
    begin, first, data = 0, 0, b""
    needed = _HEADER.size + _BLOCK_HEADER
    while begin < file.size:
        if not first <= begin <= first + len(data) - needed:
            first, data = begin, file.read(begin, min(_READ_BYTES, file.size - begin), "a chunk")
        header = _content(data[begin - first : begin - first + needed], begin)
        if len(header) < _HEADER.size:
            raise file.fault(begin, "the header of a chunk extends past the end of the file")
        _, size, _, kind_and_count, decoded = _HEADER.unpack_from(header)
        kind, count = kind_and_count & 0xFF, kind_and_count >> 8
        end = max(_end_of(begin, _HEADER.size + size), begin + count)
        if end > file.size or kind not in (_FIRST_CHUNK, _METADATA, _PADDING, *_RECORDS):
            raise file.fault(begin, f"the header of a chunk is damaged (type {kind}, {size} bytes)")
        if (fault := expansion_fault(size, decoded)) is not None:
            raise file.fault(begin, fault)
        if kind in _RECORDS:
            yield Chunk(begin, count)
        begin = end


def _content(data: bytes, offset: int) -> bytes:
    """Return the bytes at an offset without a block header."""
    at = -offset % BLOCK_BYTES
    return data[:at] + data[at + _BLOCK_HEADER :] if at < len(data) else data


def _end_of(begin: int, count: int) -> int:
    """Return the offset after `count` bytes of content from `begin`."""
    usable = BLOCK_BYTES - _BLOCK_HEADER
    blocks, inside = divmod(begin, BLOCK_BYTES)
    last = blocks * usable + max(0, inside - _BLOCK_HEADER) + count - 1
    return last // usable * BLOCK_BYTES + _BLOCK_HEADER + last % usable + 1
