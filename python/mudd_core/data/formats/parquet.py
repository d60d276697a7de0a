"""Parquet files through pyarrow, row group by row group; page checksums are verified where the file has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mudd_core.base.packages import needed
from mudd_core.data.formats.bounded import CappedFile
from mudd_core.data.formats.columnar import BATCH_ROWS, checked, damage_found, records_of
from mudd_core.data.formats.format import Columns, Format, Record

_MAGIC = b"PAR1"


def open_file(path: Path, file: CappedFile) -> tuple[Any, list[str]]:
    """The file, opened by pyarrow, and the names of its columns. Close `file` after it."""
    parquet = needed("pyarrow.parquet", f"[data] {path}", "to read Parquet files")
    with damage_found(path):
        made = parquet.ParquetFile(file, page_checksum_verification=True, memory_map=False, pre_buffer=False)
        return made, list(made.schema_arrow.names)  # a name may be no UTF-8


def batches(file: Any, columns: Columns, path: Path, groups: list[int] | None = None) -> Iterator[Any]:
    """The record batches, each checked whole; groups: of these row groups alone."""
    wanted = None if columns is None else list(columns)
    options = {"batch_size": BATCH_ROWS, "row_groups": groups, "columns": wanted, "use_threads": False}
    return checked(lambda: file.iter_batches(**options), path)


def records(path: Path, columns: Columns) -> Iterator[Record]:
    """The rows of a file."""
    return records_of(path, columns, open_file, lambda file: batches(file, columns, path))


FORMAT = Format("parquet", (".parquet", ".pq"), lambda head: head.startswith(_MAGIC), records)
