"""Parquet files, read with pyarrow one row group at a time; page checksums are verified if the file has them.

A dictionary lets a short file repeat a long value in every row, so the size of the values limits the rows of a batch.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.errors import FormatError
from mudd_core.base.packages import needed
from mudd_core.base.types import Int64, JsonObject
from mudd_core.data.formats.bounded import CappedFile, expansion_fault
from mudd_core.data.formats.columnar import (
    BATCH_ROWS,
    GroupReader,
    checked,
    damage_found,
    in_groups,
    objects_of,
    records_of,
)
from mudd_core.data.formats.format import FAIL, BadRecords, ByNumber, Columns, Format, Reader, Record
from mudd_core.data.formats.thrift import Compact, Value

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetFile

_MAGIC = b"PAR1"
_BATCH_BYTES = 64 << 20
_NUMBER_BYTES = 8
_PAGE_HEADER = 16  # bytes that contain the type and the size of a page
_BYTE_ARRAY = 6  # Type in parquet.thrift: text and bytes
_TAIL = 8  # bytes: the size of the footer, and the magic


def open_file(path: Path, file: CappedFile) -> tuple[ParquetFile, list[str]]:
    """Return the file, opened by pyarrow, and the names of its columns. Close `file` after the reader."""
    parquet = needed("pyarrow.parquet", f"[data] {path}", "to read Parquet files")
    with damage_found(path):
        made = parquet.ParquetFile(file, page_checksum_verification=True, memory_map=False, pre_buffer=False)
        return made, list(made.schema_arrow.names)  # raises an error if a name is not valid UTF-8


@dataclass(frozen=True)
class _Column:
    """The footer's entry for a column in a row group: name, sizes in bytes, number of values, offsets of its pages."""

    name: str
    is_bytes: bool
    values: int
    unpacked: int
    packed: int
    data_page: int
    dictionary: int


def _whole(fields: dict[int, Value], number: int) -> int:
    value = fields.get(number, 0)
    if not isinstance(value, int):
        raise ValueError(f"field {number} is no number")
    return value


def _column(chunk: Value) -> _Column:
    """Decode a ColumnChunk of parquet.thrift, whose field 3 is the ColumnMetaData."""
    fields = chunk.get(3) if isinstance(chunk, dict) else None
    path = fields.get(3) if isinstance(fields, dict) else None
    if (
        not isinstance(fields, dict)
        or not isinstance(path, list)
        or not path
        or not isinstance(path[0], bytes)
    ):
        raise ValueError("a column has no metadata")
    return _Column(
        name=path[0].decode(errors="replace"),
        is_bytes=_whole(fields, 1) == _BYTE_ARRAY,
        values=_whole(fields, 5),
        unpacked=_whole(fields, 6),
        packed=_whole(fields, 7),
        data_page=_whole(fields, 9),
        dictionary=_whole(fields, 11),
    )


def _row_groups(stream: CappedFile, path: Path) -> list[tuple[int, list[_Column]]]:
    """Return the number of rows and the columns of each row group from the footer (FileMetaData of parquet.thrift)."""
    end = stream.seek(0, io.SEEK_END)
    stream.seek(max(0, end - _TAIL))
    size = int.from_bytes(stream.read(4), "little")
    stream.seek(max(0, end - _TAIL - size))
    try:
        groups = Compact(stream.read(size)).struct().get(4)
        if not isinstance(groups, list):
            raise ValueError("there are no row groups")
        found = []
        for group in groups:
            chunks = group.get(1) if isinstance(group, dict) else None
            if not isinstance(group, dict) or not isinstance(chunks, list):
                raise ValueError("a row group has no columns")
            found.append((_whole(group, 3), [_column(chunk) for chunk in chunks]))
    except ValueError as error:
        raise FormatError(str(path), max(0, end - _TAIL - size), f"the footer is damaged: {error}") from None
    return found


def _rows_at_once(rows: int, found: list[_Column], stream: CappedFile, columns: Columns, path: Path) -> int:
    """Return the number of rows to decode at once: at most about _BATCH_BYTES, even if each row has the largest value.

    Raise FormatError if the column expands more than text does.
    """
    fewest = BATCH_ROWS
    for column in found:
        if columns is not None and column.name not in columns:
            continue
        fault = expansion_fault(column.packed, column.unpacked)
        if fault is not None and column.is_bytes:
            raise FormatError(str(path), max(0, column.data_page), f"column {column.name!r}: {fault}")
        largest = column.values * _NUMBER_BYTES // max(rows, 1)
        if column.dictionary > 0:
            stream.seek(column.dictionary)
            largest = max(largest, _page_bytes(stream.read(_PAGE_HEADER)))
        fewest = min(fewest, _BATCH_BYTES // max(largest, 1))
    return max(fewest, 1)


def _page_bytes(header: bytes) -> int:
    """Return the uncompressed size of a page: field 2 of its header, or 0 if that is not an integer."""
    try:
        return max(0, Compact(header).first_number(2))
    except ValueError:
        return 0


def batches(
    file: ParquetFile, stream: CappedFile, columns: Columns, path: Path, groups: list[int] | None = None
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the fully validated record batches. groups: yield only these row groups."""
    wanted = None if columns is None else list(columns)

    def read() -> Iterator[pyarrow.RecordBatch]:
        known = _row_groups(stream, path)
        for group in range(len(known)) if groups is None else groups:
            count = _rows_at_once(*known[group], stream, columns, path)
            yield from file.iter_batches(
                batch_size=count, row_groups=[group], columns=wanted, use_threads=False
            )

    return checked(read, path)


def records(path: Path, columns: Columns, bad: BadRecords = FAIL) -> Iterator[Record]:
    """Yield the records of a file."""
    return records_of(
        path, columns, open_file, lambda file, stream: batches(file, stream, columns, path), bad
    )


def objects(path: Path, bad: BadRecords = FAIL) -> Iterator[JsonObject]:
    """Yield the records of a file with all their columns."""
    return objects_of(path, open_file, lambda file, stream: batches(file, stream, None, path))


def _places(path: Path) -> Int64:
    with CappedFile(path) as stream:
        data = open_file(path, stream)[0].metadata
        return in_groups([data.row_group(group).num_rows for group in range(data.num_row_groups)])


def _reader(path: Path, column: str) -> Reader:
    return GroupReader(
        path, column, open_file, lambda file, stream, groups: batches(file, stream, (column,), path, groups)
    )


FORMAT = Format(
    "parquet",
    (".parquet", ".pq"),
    lambda head: head.startswith(_MAGIC),
    records,
    by_number=ByNumber(_places, _reader, in_groups=True),
    objects=objects,
)
