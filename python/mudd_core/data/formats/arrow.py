"""Arrow files, streams or with an index: those of `save_to_disk` folders and of the caches of `datasets`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from mudd_core.base.packages import needed
from mudd_core.data.formats.bounded import opened
from mudd_core.data.formats.columnar import rows
from mudd_core.data.formats.format import Columns, Format, Record, require_columns
from mudd_core.data.formats.parquet import damaged

_MAGIC = b"ARROW1\0\0"
_STREAM = b"\xff\xff\xff\xff"


def _open(path: Path, file: BinaryIO) -> Any:
    ipc = needed("pyarrow.ipc", f"[data] {path}", "to read Arrow files")
    try:
        indexed = file.read(len(_MAGIC)) == _MAGIC
        file.seek(0)
        return ipc.open_file(file) if indexed else ipc.open_stream(file)
    except Exception as error:
        raise damaged(path, error) from None


def _batches(reader: Any, path: Path) -> Iterator[Any]:
    """The record batches, each checked whole before a value is read."""
    count = getattr(reader, "num_record_batches", None)
    try:
        for batch in reader if count is None else (reader.get_batch(i) for i in range(count)):
            batch.validate(full=True)
            yield batch
    except Exception as error:
        raise damaged(path, error) from None


def records(path: Path, columns: Columns) -> Iterator[Record]:
    """The rows of a file."""
    with opened(path) as file, _open(path, file) as reader:
        require_columns(path, columns, list(reader.schema.names))
        yield from rows(_batches(reader, path), columns, path)


FORMAT = Format("arrow", (".arrow",), lambda head: head.startswith((_MAGIC, _STREAM)), records)
