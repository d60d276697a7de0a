"""Read JSON objects, one per line (.jsonl, .json of C4) or in one array; the file may be compressed by gzip or zstd."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mudd_core.base.errors import FormatError
from mudd_core.base.types import Int64, Json, JsonObject
from mudd_core.data.formats.bounded import LONGEST_RECORD, BoundedFile, opened
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
from mudd_core.data.formats.json_array import Elements, is_array_start
from mudd_core.data.formats.packed import conversion, damage_of_packing, is_packed, unpacked

_BLOCK = 8 << 20
_HEAD = 1 << 12  # bytes that are read to decide whether a file is an array
_MARK = b"\xef\xbb\xbf"  # UTF-8 byte order mark, which some Windows editors write first
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def _lines(path: Path) -> Iterator[bytes]:
    offset = 0
    with opened(path) as file, unpacked(path, file) as lines, damage_of_packing(path):
        while line := lines.readline(LONGEST_RECORD + 1):
            require_length(len(line), path, offset)
            yield line
            offset += len(line)


def require_length(length: int, path: Path, offset: int) -> None:
    """Raise FormatError for a line that is longer than a record may be."""
    if length > LONGEST_RECORD:
        reason = f"a line has more than {LONGEST_RECORD >> 20} MiB; split its document into several"
        raise FormatError(str(path), offset, reason)


def _object(line: bytes, path: Path, place: str, offset: int) -> JsonObject:
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        reason = f"{place} is not UTF-8 ({error.reason}){conversion(path)}"
        raise FormatError(str(path), offset + error.start, reason) from None
    except (ValueError, RecursionError) as error:
        raise FormatError(str(path), offset, f"{place} is not JSON: {error}") from None
    return _only_object(value, path, place, offset)


def _first_line(line: bytes, path: Path) -> bytes:
    """Return the first line of a file without a byte order mark.

    Raise FormatError with the command that converts the file if it is UTF-16.
    """
    if line.startswith(_UTF16):
        name, new = shlex.quote(str(path)), shlex.quote(f"{path.with_suffix('')}.utf8{path.suffix}")
        reason = f"it is UTF-16; type `iconv -f UTF-16 -t UTF-8 {name} > {new}` and name the new file"
        raise FormatError(str(path), 0, reason)
    return line.removeprefix(_MARK)


def _only_object(value: Json, path: Path, place: str, offset: int) -> JsonObject:
    if not isinstance(value, dict):
        raise FormatError(str(path), offset, f"{place}: expected an object, got {type(value).__name__}")
    return value


def _value(value: Json, where: str, path: Path, offset: int) -> Value | None:
    """Return a string or a list of integers; None for anything that no pipeline reads."""
    if isinstance(value, str):
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise FormatError(str(path), offset, f"{where} has an unpaired surrogate")
        return value
    if isinstance(value, list) and all(type(v) is int and abs(v) < 1 << 63 for v in value):
        return np.array(value, np.int64)
    return None


def records(path: Path, columns: Columns, bad: BadRecords = FAIL) -> Iterator[Record]:
    """Yield the records of a file, without empty lines. Offsets in messages are in decompressed bytes."""
    first = True
    for members, place, offset in _objects(path, bad):
        if first:
            require_columns(path, columns, list(members))
            first = False
        try:
            record = _chosen(members, columns, path, place, offset)
        except FormatError as error:
            bad.found(error)
        else:
            yield record


def _objects(path: Path, bad: BadRecords) -> Iterator[tuple[JsonObject, str, int]]:
    """Yield the objects of a file, each with a description of its place and its offset."""
    if _is_array(path):
        with opened(path) as file, unpacked(path, file) as plain, damage_of_packing(path):
            for number, (value, offset) in enumerate(Elements(path, plain), 1):
                place = f"element {number:,} of the array"
                try:
                    found = _only_object(value, path, place, offset)
                except FormatError as error:
                    bad.found(error)
                else:
                    yield found, place, offset
        return
    offset = 0
    for number, line in enumerate(_lines(path), 1):
        if line.strip():
            place = f"line {number}"
            text = line if offset else _first_line(line, path)
            try:
                found = _object(text, path, place, offset)
            except FormatError as error:
                bad.found(error)
            else:
                yield found, place, offset
        offset += len(line)


def _is_array(path: Path) -> bool:
    """Return whether a file is one array of objects."""
    with opened(path) as file, unpacked(path, file) as plain, damage_of_packing(path):
        return is_array_start(plain.read(_HEAD))


def objects(path: Path, bad: BadRecords = FAIL) -> Iterator[JsonObject]:
    """Yield the objects of a file, without empty lines."""
    return (members for members, _, _ in _objects(path, bad))


def record_of(line: bytes, columns: Columns, path: Path, number: int, offset: int) -> Record:
    """Return the record of one line. number, offset: of the line, for messages."""
    place = f"line {number + 1}"
    return _chosen(
        _object(line if offset else _first_line(line, path), path, place, offset),
        columns,
        path,
        place,
        offset,
    )


def _chosen(members: JsonObject, columns: Columns, path: Path, place: str, offset: int) -> Record:
    record: dict[str, Value] = {}
    for name in members if columns is None else columns:
        where = f"{place}: key {name!r}"
        if name not in members:
            raise FormatError(str(path), offset, f"{where} is missing")
        value = _value(members[name], where, path, offset)
        if value is not None:
            record[name] = value
        elif columns is not None:
            raise FormatError(str(path), offset, f"{where}: expected text or a list of whole numbers")
    return record


def _is_start(head: bytes) -> bool:
    """Return whether a file starts with an array of objects, a complete object, or a long line as in C4."""
    if is_array_start(head):
        return True
    line, end, _ = head.removeprefix(_MARK).partition(b"\n")
    if not end:
        return line.startswith((b'{"text"', b'{"id"', b'{"input_ids"'))
    try:
        return isinstance(json.loads(line), dict)
    except UnicodeDecodeError:  # the reader of lines names the byte that is not UTF-8
        return line.lstrip().startswith(b"{") and line.rstrip().endswith(b"}")
    except (ValueError, RecursionError):
        return False


def _places_of_lines(path: Path) -> Int64:
    """Return offset and length of each line that is not empty."""
    ends: list[Int64] = []
    empty: list[int] = []  # lines that start with white space, which may be empty
    with BoundedFile(path) as file:
        begin = 0
        for at in range(0, file.size, _BLOCK):
            block = np.frombuffer(file.read(at, min(_BLOCK, file.size - at), "lines"), np.uint8)
            found = np.flatnonzero(block == 10).astype(np.int64) + (at + 1)
            ends.append(found)
            starts = np.concatenate(([begin], found)) - at
            here = starts[(starts >= 0) & (starts < block.size)]
            empty += (here[block[here] <= 32] + at).tolist()
            begin = at + block.size if found.size and found[-1] == at + block.size else -1
        whole = np.concatenate([np.empty(0, np.int64), *ends])
        if file.size and (not whole.size or whole[-1] != file.size):
            whole = np.append(whole, file.size)
        starts = np.concatenate(([0], whole[:-1])) if whole.size else whole
        blank = [
            start
            for start in sorted(set(empty))
            if not file.read(start, int(whole[np.searchsorted(starts, start)]) - start, "a line").strip()
        ]
    places = np.stack([starts, whole - starts], axis=1).astype(np.int64)
    return places[~np.isin(starts, blank)] if blank else places


class _Lines:
    """The lines of a plain file, read by their positions."""

    def __init__(self, path: Path, column: str) -> None:
        self._file, self._column = BoundedFile(path, reads_again=True), column

    def read(self, places: Int64, numbers: Int64) -> list[Value | None]:
        return [
            self._value(at, size, number)
            for (at, size), number in zip(places.tolist(), numbers.tolist(), strict=True)
        ]

    def _value(self, at: int, size: int, number: int) -> Value | None:
        path = self._file.path
        require_length(size, path, at)
        line = self._file.read(at, size, "a line")
        return record_of(line, (self._column,), path, number, at).get(self._column)


def _order_fault(path: Path) -> str:
    if is_packed(path):
        return f"{path.name} is compressed"
    return f"{path.name} is one array of JSON" if _is_array(path) else ""


_PLAIN = (".jsonl", ".ndjson")
ENDINGS = (*_PLAIN, *(name + packed for name in (*_PLAIN, ".json") for packed in (".gz", ".zst")))
FORMAT = Format(
    "jsonl",
    ENDINGS,
    _is_start,
    records,
    by_number=ByNumber(_places_of_lines, _Lines, fault=_order_fault),
    objects=objects,
)
