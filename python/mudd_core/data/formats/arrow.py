"""Arrow files, streams or with an index: those of `save_to_disk` folders and of the caches of `datasets`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mudd_core.base.packages import needed
from mudd_core.data.formats.bounded import CappedFile
from mudd_core.data.formats.columnar import checked, damage_found, records_of
from mudd_core.data.formats.format import Columns, Format, Record

_MAGIC = b"ARROW1\0\0"
_STREAM = b"\xff\xff\xff\xff"


def is_indexed(path: Path) -> bool:
    """Whether a file has an index of its batches; a stream has none."""
    with CappedFile(path) as file:
        return file.read(len(_MAGIC)) == _MAGIC


def open_file(path: Path, file: CappedFile) -> tuple[Any, list[str]]:
    """The reader and the names of its columns."""
    ipc = needed("pyarrow.ipc", f"[data] {path}", "to read Arrow files")
    with damage_found(path):
        indexed = file.read(len(_MAGIC)) == _MAGIC
        file.seek(0)
        reader = ipc.open_file(file) if indexed else ipc.open_stream(file)
        return reader, list(reader.schema.names)  # a name may be no UTF-8


def batches(reader: Any, path: Path, groups: list[int] | None = None) -> Iterator[Any]:
    """The record batches, each checked whole; groups: these alone, of a file with an index."""
    count = getattr(reader, "num_record_batches", None)
    wanted = range(count or 0) if groups is None else groups
    return checked(lambda: reader if count is None else (reader.get_batch(i) for i in wanted), path)


def records(path: Path, columns: Columns) -> Iterator[Record]:
    """The rows of a file."""
    return records_of(path, columns, open_file, lambda reader, _: batches(reader, path))


FORMAT = Format(
    "arrow", (".arrow",), lambda head: head.startswith((_MAGIC, _STREAM)), records, folder_endings=(".arrow",)
)
