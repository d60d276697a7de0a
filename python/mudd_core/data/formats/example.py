"""tf.train.Example: decode and encode the features of a TFRecord or ArrayRecord record.

Messages: Example {features 1}, Features {feature 1: map entries {key 1, value 2}}, Feature {bytes_list 1 | float_list 2
| int64_list 3}, each list {value 1}; numbers are packed or have one tag each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from mudd_core.base.framing import block, varint
from mudd_core.data.formats.format import Columns, Value

_BYTES, _FLOATS, _INTEGERS = 1, 2, 3
_LONGEST_NAME = 1024
_LONGEST_VARINT = 10
Int64 = npt.NDArray[np.int64]


class MessageError(ValueError):
    """Bytes that are not the expected message. Attribute: offset of the error in the message."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


def features(message: bytes, columns: Columns = None) -> dict[str, Value]:
    """Return the features by name (or the existing ones of `columns`) as bytes, int64 or float32.

    Raise MessageError if the message is damaged.
    """
    found: dict[str, Value] = {}
    for number, start, end in _blocks(message, 0, len(message)):
        if number != 1:
            continue
        for entry, first, last in _blocks(message, start, end):
            if entry == 1:
                name, place = _entry(message, first, last)
                if columns is None or name in columns:
                    found[name] = _value(message, name, *place)
    return found


def names(message: bytes) -> list[str]:
    """Return only the names of the features."""
    return [
        _entry(message, first, last)[0]
        for number, start, end in _blocks(message, 0, len(message))
        if number == 1
        for entry, first, last in _blocks(message, start, end)
        if entry == 1
    ]


def encoded(values: Mapping[str, Value]) -> bytes:
    """Return the message with these features in the order of their names; numbers are packed."""
    entries = bytearray()
    for name in sorted(values):
        value = values[name]
        if isinstance(value, np.ndarray):
            kind = _INTEGERS if value.dtype == np.int64 else _FLOATS
            packed = (
                varints(value.astype(np.int64)) if value.dtype == np.int64 else value.astype("<f4").tobytes()
            )
            feature = block(kind, block(1, packed))
        else:
            feature = block(_BYTES, block(1, value.encode() if isinstance(value, str) else value))
        entries += block(1, block(1, name.encode()) + block(2, feature))
    return block(1, bytes(entries))


def _entry(message: bytes, start: int, end: int) -> tuple[str, tuple[int, int]]:
    """Return the name and the range of the value for one entry of the map."""
    name, place = "", (end, end)
    for number, first, last in _blocks(message, start, end):
        if number == 1:
            if last - first > _LONGEST_NAME:
                raise MessageError(first, f"the name of a feature has {last - first} bytes")
            try:
                name = message[first:last].decode("utf-8")
            except UnicodeDecodeError:
                raise MessageError(first, "the name of a feature is not UTF-8") from None
        elif number == 2:
            place = (first, last)
    return name, place


def _value(message: bytes, name: str, start: int, end: int) -> Value:
    """Return the value of a Feature; without a list it is an empty array of integers."""
    value: Value = np.empty(0, np.int64)
    for number, first, last in _blocks(message, start, end):
        if number == _BYTES:
            texts = [(a, b) for field, a, b in _blocks(message, first, last) if field == 1]
            if len(texts) != 1:
                raise MessageError(first, f"feature {name!r}: expected one text, got {len(texts)}")
            value = message[texts[0][0] : texts[0][1]]
        elif number == _INTEGERS:
            value = _integers(message, first, last)
        elif number == _FLOATS:
            value = _fractions(message, first, last)
    return value


def _integers(message: bytes, start: int, end: int) -> Int64:
    if start < end and message[start] == 1 << 3:  # unpacked: a tag before each number
        pairs = read_varints(message, start, end)
        if pairs.size % 2 or not (pairs[::2] == 1 << 3).all():
            raise MessageError(start, "a list of whole numbers is malformed")
        return pairs[1::2].copy()
    parts = [read_varints(message, a, b) for field, a, b in _blocks(message, start, end) if field == 1]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])


def _fractions(message: bytes, start: int, end: int) -> npt.NDArray[np.float32]:
    if start < end and message[start] == 1 << 3 | 5:
        rows = np.frombuffer(message, np.uint8, end - start, start)
        if rows.size % 5 or not (rows[::5] == (1 << 3 | 5)).all():
            raise MessageError(start, "a list of floats is malformed")
        return np.ascontiguousarray(rows.reshape(-1, 5)[:, 1:]).view("<f4").ravel()
    parts = [message[a:b] for field, a, b in _blocks(message, start, end) if field == 1]
    joined = b"".join(parts)
    if len(joined) % 4:
        raise MessageError(start, "a list of floats is malformed")
    return np.frombuffer(joined, "<f4").astype(np.float32)


def _blocks(message: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (field, start, end) for the length-delimited fields between two offsets; skip other fields."""
    at = start
    while at < end:
        tag, at = _varint(message, at, end)
        wire = tag & 7
        if wire == 2:
            size, at = _varint(message, at, end)
            if size > end - at:
                raise MessageError(at, f"a field of {size} bytes extends past the end of its message")
            yield tag >> 3, at, at + size
            at += size
        elif wire == 0:
            _, at = _varint(message, at, end)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise MessageError(at, f"a field has the unknown wire type {wire}")
    if at != end:
        raise MessageError(end, "a field extends past the end of its message")


def _varint(message: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for i in range(_LONGEST_VARINT):
        if at + i >= end:
            break
        byte = message[at + i]
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, at + i + 1
    raise MessageError(at, "a varint has no end")


def read_varints(message: bytes, start: int, end: int) -> Int64:
    """Return all varints between two offsets, as int64."""
    data = np.frombuffer(message, np.uint8, end - start, start)
    last = np.flatnonzero(data < 0x80)
    if data.size and (not last.size or last[-1] != data.size - 1):
        raise MessageError(start, "a varint has no end")
    first = np.concatenate(([0], last[:-1] + 1)) if last.size else last
    length = last - first + 1
    longest = int(length.max()) if length.size else 0
    if longest > _LONGEST_VARINT:
        raise MessageError(start, f"a varint has {longest} bytes")
    values = np.zeros(last.size, np.uint64)
    for i in range(longest):
        there = length > i
        values[there] |= (data[first[there] + i] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * i)
    return values.view(np.int64)


def varints(values: Int64) -> bytes:
    """Return integers encoded as consecutive varints; a negative one has ten bytes."""
    rest = values.astype(np.int64).view(np.uint64)
    if not rest.size:
        return b""
    if int(values.min()) < 0:
        return b"".join(varint(int(value)) for value in rest)
    length = np.ones(rest.size, np.int64)
    for i in range(1, 9):
        length += rest >> np.uint64(7 * i) > 0
    start = np.cumsum(length) - length
    out = np.zeros(int(length.sum()), np.uint8)
    for i in range(int(length.max())):
        there = length > i
        more = np.where(length[there] > i + 1, 0x80, 0).astype(np.uint8)
        out[start[there] + i] = (rest[there] >> np.uint64(7 * i) & np.uint64(0x7F)).astype(np.uint8) | more
    return out.tobytes()
