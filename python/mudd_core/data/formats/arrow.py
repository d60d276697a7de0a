"""Arrow files, as streams or with an index: from `save_to_disk` folders and from the caches of `datasets`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from mudd_core.base.packages import needed
from mudd_core.base.types import Int64, JsonObject
from mudd_core.data.formats.bounded import CappedFile
from mudd_core.data.formats.columnar import (
    GroupReader,
    checked,
    damage_found,
    in_groups,
    objects_of,
    records_of,
)
from mudd_core.data.formats.format import FAIL, BadRecords, ByNumber, Columns, Format, Reader, Record

if TYPE_CHECKING:
    import pyarrow

# The file of an index, or a stream without one.
ArrowReader: TypeAlias = "pyarrow.ipc.RecordBatchFileReader | pyarrow.ipc.RecordBatchStreamReader"
_MAGIC = b"ARROW1\0\0"
_STREAM = b"\xff\xff\xff\xff"


def is_indexed(path: Path) -> bool:
    """Return whether a file has an index of its batches; a stream has none."""
    with CappedFile(path) as file:
        return file.read(len(_MAGIC)) == _MAGIC


def open_file(path: Path, file: CappedFile) -> tuple[ArrowReader, list[str]]:
    """Return the reader and the names of its columns."""
    ipc = needed("pyarrow.ipc", f"[data] {path}", "to read Arrow files")
    with damage_found(path):
        indexed = file.read(len(_MAGIC)) == _MAGIC
        file.seek(0)
        reader = ipc.open_file(file) if indexed else ipc.open_stream(file)
        return reader, list(reader.schema.names)  # raises an error if a name is not valid UTF-8


def batches(
    reader: ArrowReader, path: Path, groups: list[int] | None = None
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the fully validated record batches. groups: yield only these batches, of a file with an index."""
    count = getattr(reader, "num_record_batches", None)
    wanted = range(count or 0) if groups is None else groups
    return checked(lambda: reader if count is None else (reader.get_batch(i) for i in wanted), path)


def records(path: Path, columns: Columns, bad: BadRecords = FAIL) -> Iterator[Record]:
    """Yield the records of a file."""
    return records_of(path, columns, open_file, lambda reader, _: batches(reader, path), bad)


def objects(path: Path, bad: BadRecords = FAIL) -> Iterator[JsonObject]:
    """Yield the records of a file with all their columns."""
    return objects_of(path, open_file, lambda reader, _: batches(reader, path))


def _places(path: Path) -> Int64:
    with CappedFile(path) as stream:
        reader, _ = open_file(path, stream)
        return in_groups([batch.num_rows for batch in batches(reader, path)])


def _reader(path: Path, column: str) -> Reader:
    return GroupReader(path, column, open_file, lambda file, _, groups: batches(file, path, groups))


def _order_fault(path: Path) -> str:
    return "" if is_indexed(path) else f"{path.name} is an Arrow stream"


FORMAT = Format(
    "arrow",
    (".arrow",),
    lambda head: head.startswith((_MAGIC, _STREAM)),
    records,
    by_number=ByNumber(_places, _reader, in_groups=True, fault=_order_fault),
    objects=objects,
)
