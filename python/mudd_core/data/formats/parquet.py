"""Parquet files through pyarrow, row group by row group; page checksums are verified where the file has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mudd_core.base.errors import FormatError
from mudd_core.base.packages import needed
from mudd_core.data.formats.bounded import CappedFile
from mudd_core.data.formats.columnar import BATCH_ROWS, rows
from mudd_core.data.formats.format import Columns, Format, Record, require_columns

_MAGIC = b"PAR1"


def open_file(path: Path, file: CappedFile) -> tuple[Any, list[str]]:
    """The file, opened by pyarrow, and the names of its columns. Close `file` after it."""
    parquet = needed("pyarrow.parquet", f"[data] {path}", "to read Parquet files")
    try:
        made = parquet.ParquetFile(file, page_checksum_verification=True, memory_map=False, pre_buffer=False)
        return made, list(made.schema_arrow.names)  # a name may be no UTF-8
    except Exception as error:
        raise damaged(path, error) from None


def damaged(path: Path, error: Exception) -> FormatError:
    """What pyarrow says of a file, in one line."""
    text = " ".join(str(error).split())
    return FormatError(str(path), 0, f"pyarrow cannot read it: {type(error).__name__}: {text[:200]}")


def batches(file: Any, columns: Columns, path: Path, groups: list[int] | None = None) -> Iterator[Any]:
    """The record batches, each checked whole; groups: of these row groups alone."""
    wanted = None if columns is None else list(columns)
    try:
        for batch in file.iter_batches(
            batch_size=BATCH_ROWS, row_groups=groups, columns=wanted, use_threads=False
        ):
            batch.validate(full=True)
            yield batch
    except Exception as error:
        raise damaged(path, error) from None


def records(path: Path, columns: Columns) -> Iterator[Record]:
    """The rows of a file."""
    with CappedFile(path) as stream:
        file, names = open_file(path, stream)
        require_columns(path, columns, names)
        yield from rows(batches(file, columns, path), columns, path)


FORMAT = Format("parquet", (".parquet", ".pq"), lambda head: head.startswith(_MAGIC), records)
