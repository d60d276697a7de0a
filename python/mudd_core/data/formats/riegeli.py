"""The chunks of a Riegeli file, the container of ArrayRecord, by their headers alone.

A block of 64 KiB begins with a header of 24 bytes, which may interrupt a chunk. A chunk is a header of 40 bytes (hash,
size of the data, hash of the data, type and number of records, decoded size) and its data.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from mudd_core.data.formats.bounded import BoundedFile, expansion_fault

BLOCK_BYTES = 1 << 16
_BLOCK_HEADER = 24
_HEADER = struct.Struct("<5Q")
_READ_BYTES = 4096  # at once: small chunks follow one another, and large ones cost one read each
_SIGNATURE, _METADATA, _PADDING = b"smp"
_RECORDS = b"rt"


@dataclass(frozen=True)
class Chunk:
    """A chunk of records. begin: its offset. count: the records that its header names."""

    begin: int
    count: int


def record_chunks(file: BoundedFile) -> Iterator[Chunk]:
    """Walk through a file and yield its chunks of records. FormatError unless the chunks fill the file."""
    begin, first, data = 0, 0, b""
    needed = _HEADER.size + _BLOCK_HEADER
    while begin < file.size:
        if not first <= begin <= first + len(data) - needed:
            first, data = begin, file.read(begin, min(_READ_BYTES, file.size - begin), "a chunk")
        header = _content(data[begin - first : begin - first + needed], begin)
        if len(header) < _HEADER.size:
            raise file.fault(begin, "the header of a chunk reaches over the end of the file")
        _, size, _, kind_and_count, decoded = _HEADER.unpack_from(header)
        kind, count = kind_and_count & 0xFF, kind_and_count >> 8
        end = max(_end_of(begin, _HEADER.size + size), begin + count)
        if end > file.size or kind not in (_SIGNATURE, _METADATA, _PADDING, *_RECORDS):
            raise file.fault(begin, f"the header of a chunk is damaged (type {kind}, {size} bytes)")
        if (fault := expansion_fault(size, decoded)) is not None:
            raise file.fault(begin, fault)
        if kind in _RECORDS:
            yield Chunk(begin, count)
        begin = end


def _content(data: bytes, offset: int) -> bytes:
    """The bytes at an offset without the header of a block."""
    at = -offset % BLOCK_BYTES
    return data[:at] + data[at + _BLOCK_HEADER :] if at < len(data) else data


def _end_of(begin: int, count: int) -> int:
    """The offset after `count` bytes of content from `begin`."""
    usable = BLOCK_BYTES - _BLOCK_HEADER
    blocks, inside = divmod(begin, BLOCK_BYTES)
    last = blocks * usable + max(0, inside - _BLOCK_HEADER) + count - 1
    return last // usable * BLOCK_BYTES + _BLOCK_HEADER + last % usable + 1
