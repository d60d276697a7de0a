"""Convert sources into one file: Parquet, jsonl or Arrow.

A table needs the type of each column before its first row, so records are read twice: for their types, then to write
them. Documents, ids and jsonl are read once. Neither pass keeps more than _BATCH_BYTES of records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mudd_core.base.errors import UserError, in_one_line
from mudd_core.base.packages import needed
from mudd_core.data.formats.bounded import LONGEST_RECORD
from mudd_core.data.progress import UNKNOWN, ConsoleProgress
from mudd_core.tools.convert.columns import Cell, Column, NoColumnError, Row
from mudd_core.tools.convert.new_file import NewFile
from mudd_core.tools.convert.sources import IDS, Source
from mudd_core.tools.sigterm import ended_by_sigterm

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

PLACE = "[data convert] --to"
_BATCH_ROWS = 1024
# Readers accept a column of this size at any ratio of compression (formats/bounded.py).
_BATCH_BYTES = 8 << 20
_REPORT = 1000  # records between two reports of the progress


class RecordWriter(Protocol):
    """A writer of records in one format; `close` completes the file."""

    def write(self, row: Row) -> None: ...
    def close(self) -> None: ...


class JsonlWriter:
    """Writes records as JSON objects, one per line."""

    def __init__(self, file: NewFile, schema: pyarrow.Schema | None) -> None:
        self._file = file
        self._lines: list[bytes] = []
        self._size = self._count = 0

    def write(self, row: Row) -> None:
        line = json.dumps(row, ensure_ascii=False, default=np.ndarray.tolist).encode() + b"\n"
        if len(line) > LONGEST_RECORD:
            raise UserError(
                f"{PLACE}: record {self._count} has {len(line):,} bytes, and a line of jsonl at most "
                f"{LONGEST_RECORD >> 20} MiB; use --to=NAME.parquet, or --document=piece for plain text"
            )
        self._lines.append(line)
        self._count += 1
        self._size += len(line)
        if self._size >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._file.write(b"".join(self._lines))
        self._lines, self._size = [], 0

    def close(self) -> None:
        self._flush()


class TableWriter:
    """Writes batches of records as row groups of Parquet, or as batches of an Arrow file."""

    def __init__(self, file: NewFile, schema: pyarrow.Schema | None) -> None:
        assert schema is not None
        self._schema = schema
        self._file: ParquetWriter | pyarrow.ipc.RecordBatchFileWriter
        if file.path.suffix == ".parquet":
            from pyarrow.parquet import ParquetWriter

            # Readers check the pages' checksums. A dictionary would let a short file expand to any size.
            self._file = ParquetWriter(file, schema, use_dictionary=False, write_page_checksum=True)
        else:
            from pyarrow import ipc

            self._file = ipc.new_file(file, schema)
        self._rows: list[Row] = []
        self._size = 0

    def write(self, row: Row) -> None:
        self._rows.append(row)
        self._size += _size_of(row)
        if len(self._rows) == _BATCH_ROWS or self._size >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        from pyarrow import RecordBatch

        if self._rows:
            self._file.write_batch(RecordBatch.from_pylist(self._rows, schema=self._schema))
        self._rows, self._size = [], 0

    def close(self) -> None:
        self._flush()
        self._file.close()


# The endings of files that are written, each with its writer and the module that it needs.
WRITERS: dict[str, tuple[Callable[[NewFile, pyarrow.Schema | None], RecordWriter], str]] = {
    ".parquet": (TableWriter, "pyarrow.parquet"),
    ".jsonl": (JsonlWriter, ""),
    ".arrow": (TableWriter, "pyarrow.ipc"),
}


def write_one(source: Source, target: Path, other: str) -> list[str]:
    """Write all records of a source to a new file and return lines about it. An error or a stop leaves no file.

    other: the command that writes jsonl instead, for the message about records that fit no table. Raise UserError for
    an existing file, a source without records, or records that fit no table; SaveError if the disk rejects a write.
    """
    make, module = WRITERS[target.suffix]
    if module:
        needed(module, PLACE, f"to write {target.suffix} files")
    progress = ConsoleProgress(what=f"writing {target}")
    with ended_by_sigterm(), NewFile(target, PLACE) as file, _readable(file, other):
        schema = _columns(source, target.suffix == ".arrow", progress).schema() if module else None
        writer, count = make(file, schema), 0
        for count, row in enumerate(source.records(), 1):
            writer.write(row)
            if count % _REPORT == 0:
                progress(f"writing {target.name}", count, UNKNOWN)
        if not count or (schema is not None and not schema.names):
            raise UserError(f"[data convert] expected records, got none in {os.fspath(source.files[0])}")
        writer.close()
        file.commit()
        progress.close()
        kind = "documents" if source.format.holds == "text" else "records"
        return [f"written  {target}  {count:,} {kind}, {file.size:,} bytes, SHA-256 {file.digest()}"]


def _columns(source: Source, may_be_empty: bool, progress: ConsoleProgress) -> Column:
    """Return the columns of a source as the members of an object. may_be_empty: the format has objects without keys."""
    root = Column()
    if source.has_types:
        root.add_members({"text": ""} if source.format.holds == "text" else {IDS: [0]}, 0)
        return root
    for count, row in enumerate(source.records()):
        root.add_members(row, count)
        if count and count % _REPORT == 0:
            progress("reading the types of the columns", count, UNKNOWN)
    root.check(may_be_empty)
    return root


@contextmanager
def _readable(file: NewFile, other: str) -> Iterator[None]:
    """Raise the error of the disk for a failed write, and UserError for records that fit no table."""
    try:
        yield
    except NoColumnError as error:
        top = error.place.partition(".")[0].removesuffix("[]")
        raise UserError(
            f"{PLACE}: {error}, and {file.path.suffix} needs one type for each column; leave {top!r} out "
            f"(--keep=NAME,...), or type: {other}"
        ) from None
    except UnicodeEncodeError:
        raise UserError(
            "[data convert] a string has an unpaired surrogate, which is not valid text"
        ) from None
    except (UserError, KeyboardInterrupt, SystemExit):
        raise
    except Exception as error:
        if file.fault is not None:
            raise file.error(file.fault) from error
        if type(error).__module__ == "pyarrow.lib":
            raise UserError(
                f"{PLACE}: pyarrow cannot store the records: {in_one_line(error)[:200]}"
            ) from None
        raise


def _size_of(value: Cell | Row) -> int:
    """Return the approximate size of a value in bytes."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(map(_size_of, value.values()))
    return sum(map(_size_of, value)) if isinstance(value, list) else 8
