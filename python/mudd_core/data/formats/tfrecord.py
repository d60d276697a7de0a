"""TFRecord files: framed records (base/framing.py), each a tf.train.Example."""

from __future__ import annotations

import shlex
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.framing import FOOTER_BYTES, HEADER_BYTES, masked_crc
from mudd_core.base.types import Int64
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.example import MessageError, features, names
from mudd_core.data.formats.format import (
    FAIL,
    BadRecords,
    ByNumber,
    Columns,
    Format,
    Record,
    Value,
    require_columns,
)

_HEAD_BYTES = 1 << 12
_COMPRESSIONS = (("GZIP", b"\x1f\x8b", 31), ("ZLIB", b"\x78", 15))  # wbits as in zlib.decompressobj
_UNPACK_ZLIB = (
    "python3 -c 'import sys, zlib; sys.stdout.buffer.write(zlib.decompress(sys.stdin.buffer.read()))'"
)


def payload_at(file: BoundedFile, offset: int) -> bytes:
    """Return the payload of the record at `offset`; both checksums are verified."""
    header = file.read(offset, HEADER_BYTES, "the header of a record")
    length, crc = struct.unpack("<QI", header)
    if masked_crc(header[:8]) != crc:
        raise file.fault(offset, "the checksum of a record's length does not match")
    if length > file.size - offset - HEADER_BYTES - FOOTER_BYTES:
        raise file.fault(offset, f"a record of {length} bytes extends past the end of the file")
    data = file.read(offset + HEADER_BYTES, length + FOOTER_BYTES, "a record")
    payload = data[:length]
    if masked_crc(payload) != int.from_bytes(data[length:], "little"):
        raise file.fault(offset + HEADER_BYTES, "the checksum of a record does not match")
    return payload


def offsets(file: BoundedFile) -> Iterator[int]:
    """Yield the offset of each record. The checksums of lengths are verified, the checksums of payloads are not.

    Raise UserError for a file that is compressed as a whole.
    """
    if (found := _compression(file.read(0, min(file.size, _HEAD_BYTES), "the head"))) is not None:
        raise _compressed(file.path, found)
    at = 0
    while at < file.size:
        header = file.read(at, HEADER_BYTES, "the header of a record")
        length, crc = struct.unpack("<QI", header)
        if masked_crc(header[:8]) != crc:
            raise file.fault(at, "the checksum of a record's length does not match")
        if length > file.size - at - HEADER_BYTES - FOOTER_BYTES:
            raise file.fault(at, f"a record of {length} bytes extends past the end of the file")
        yield at
        at += HEADER_BYTES + length + FOOTER_BYTES


def example_of(payload: bytes, columns: Columns, path: Path, offset: int, number: int) -> Record:
    """Return the features of a record. If one is missing, raise UserError for the first record, else FormatError."""
    try:
        record = features(payload, columns)
        missing = [name for name in columns or () if name not in record]
        if missing and number == 0:
            require_columns(path, columns, names(payload))
    except MessageError as error:
        reason = f"record {number} is no tf.train.Example: {error}"
        raise FormatError(str(path), offset + error.offset, reason) from None
    if missing:
        raise FormatError(str(path), offset, f"record {number} has no feature {missing[0]!r}")
    return record


def feature_of(payload: bytes, name: str, path: Path, offset: int, number: int) -> Value:
    """Return one feature.

    Raise FormatError, not UserError, if it is missing, because the pipeline and not the user names it.
    """
    try:
        record = features(payload, (name,))
    except MessageError as error:
        reason = f"record {number} is no tf.train.Example: {error}"
        raise FormatError(str(path), offset + error.offset, reason) from None
    if name not in record:
        raise FormatError(str(path), offset, f"record {number} has no feature {name!r}")
    return record[name]


def records(path: Path, columns: Columns, bad: BadRecords = FAIL) -> Iterator[Record]:
    """Yield the Examples of a file. A damaged payload is a bad record; a damaged length ends the reading."""
    with BoundedFile(path) as file:
        for number, at in enumerate(offsets(file)):
            try:
                record = example_of(payload_at(file, at), columns, path, at + HEADER_BYTES, number)
            except FormatError as error:
                bad.found(error)
            else:
                yield record


def _is_start(head: bytes) -> bool:
    """Return whether the first length matches its checksum, perhaps after decompression."""
    return _is_framed(head) or _compression(head) is not None


def _is_framed(head: bytes) -> bool:
    return len(head) >= HEADER_BYTES and masked_crc(head[:8]) == int.from_bytes(head[8:12], "little")


def _compression(head: bytes) -> str | None:
    """Return GZIP or ZLIB, as TensorFlow names them, for compressed records; None for another file."""
    for name, start, window_bits in _COMPRESSIONS:
        if head.startswith(start):
            try:
                plain = zlib.decompressobj(window_bits).decompress(head, HEADER_BYTES)
            except zlib.error:
                return None
            return name if _is_framed(plain) else None
    return None


def _compressed(path: Path, found: str) -> UserError:
    """Return the error for compressed records, with the command that decompresses them."""
    plain = path.with_name(path.name.split(".")[0] + ".plain.tfrecord")
    old, new = shlex.quote(str(path)), shlex.quote(str(plain))
    unpack = f"gunzip -c < {old}" if found == "GZIP" else f"{_UNPACK_ZLIB} < {old}"
    return UserError(
        f"[data.path] expected plain TFRecords, got TFRecords compressed as {found} in "
        f"{str(path)!r}: type `{unpack} > {new}` and name the new file"
    )


def _places_of_frames(path: Path) -> Int64:
    with BoundedFile(path) as file:
        found = np.fromiter(offsets(file), np.int64)
    return np.stack([found, np.zeros_like(found)], axis=1)


class _Frames:
    """An open TFRecord file, read by offset."""

    def __init__(self, path: Path, column: str) -> None:
        self._file, self._column = BoundedFile(path, reads_again=True), column

    def read(self, places: Int64, numbers: Int64) -> list[Value | None]:
        path, column = self._file.path, self._column
        return [
            feature_of(payload_at(self._file, at), column, path, at + HEADER_BYTES, int(number))
            for at, number in zip(places[:, 0].tolist(), numbers, strict=True)
        ]


FORMAT = Format(
    "tfrecord",
    (".tfrecord", ".tfrecords"),
    _is_start,
    records,
    by_number=ByNumber(_places_of_frames, _Frames),
)
