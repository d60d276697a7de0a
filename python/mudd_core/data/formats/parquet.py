"""Parquet files through pyarrow, row group by row group; page checksums are verified where the file has them.

A dictionary lets a short file repeat a long value in every row, so its size bounds the rows of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mudd_core.base.errors import FormatError
from mudd_core.base.packages import needed
from mudd_core.data.formats.bounded import CappedFile, expansion_fault
from mudd_core.data.formats.columnar import BATCH_ROWS, checked, damage_found, records_of
from mudd_core.data.formats.format import Columns, Format, Record

_MAGIC = b"PAR1"
_BATCH_BYTES = 64 << 20
_NUMBER_BYTES = 8
_PAGE_HEADER = 16  # bytes that have the type and the size of a page
_NEXT_I32 = b"\x15"  # Thrift's compact protocol: the next field, an i32


def open_file(path: Path, file: CappedFile) -> tuple[Any, list[str]]:
    """The file, opened by pyarrow, and the names of its columns. Close `file` after it."""
    parquet = needed("pyarrow.parquet", f"[data] {path}", "to read Parquet files")
    with damage_found(path):
        made = parquet.ParquetFile(file, page_checksum_verification=True, memory_map=False, pre_buffer=False)
        return made, list(made.schema_arrow.names)  # a name may be no UTF-8


def _rows_at_once(found: Any, stream: CappedFile, columns: Columns, path: Path) -> int:
    """How many rows of a row group to decode at once: about _BATCH_BYTES even if all have the largest value.

    FormatError for text that expands more than text does.
    """
    fewest = BATCH_ROWS
    for column in map(found.column, range(found.num_columns)):
        if columns is not None and column.path_in_schema.split(".")[0] not in columns:
            continue
        fault = expansion_fault(column.total_compressed_size, column.total_uncompressed_size)
        if fault is not None and column.physical_type == "BYTE_ARRAY":
            raise FormatError(
                str(path), column.data_page_offset, f"column {column.path_in_schema!r}: {fault}"
            )
        largest = column.num_values * _NUMBER_BYTES // max(found.num_rows, 1)
        if column.dictionary_page_offset:
            stream.seek(column.dictionary_page_offset)
            largest = max(largest, _page_bytes(stream.read(_PAGE_HEADER)))
        fewest = min(fewest, _BATCH_BYTES // max(largest, 1))
    return max(fewest, 1)


def _page_bytes(header: bytes) -> int:
    """The uncompressed size of a page by its header, a Thrift structure whose fields 1 and 2 are i32; else 0."""
    numbers = []
    at = 0
    for _ in range(2):
        if header[at : at + 1] != _NEXT_I32:
            return 0
        value, shift, at = 0, 0, at + 1
        while at < len(header):
            value |= (header[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if header[at - 1] < 0x80:
                break
        numbers.append(value >> 1)  # zigzag of a number that is not negative
    return numbers[1]


def batches(
    file: Any, stream: CappedFile, columns: Columns, path: Path, groups: list[int] | None = None
) -> Iterator[Any]:
    """The record batches, each checked whole; groups: of these row groups alone."""
    wanted = None if columns is None else list(columns)

    def read() -> Iterator[Any]:
        for group in range(file.metadata.num_row_groups) if groups is None else groups:
            count = _rows_at_once(file.metadata.row_group(group), stream, columns, path)
            yield from file.iter_batches(
                batch_size=count, row_groups=[group], columns=wanted, use_threads=False
            )

    return checked(read, path)


def records(path: Path, columns: Columns) -> Iterator[Record]:
    """The rows of a file."""
    return records_of(path, columns, open_file, lambda file, stream: batches(file, stream, columns, path))


FORMAT = Format("parquet", (".parquet", ".pq"), lambda head: head.startswith(_MAGIC), records)
