"""Read records from batches of Arrow columns, for Parquet and Arrow files. Use only files from trusted sources."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from mudd_core.base.errors import FormatError, in_one_line
from mudd_core.base.types import Int64, JsonObject
from mudd_core.data.formats.bounded import CappedFile
from mudd_core.data.formats.format import FAIL, BadRecords, Columns, Record, Value, require_columns

if TYPE_CHECKING:
    import pyarrow

BATCH_ROWS = 256
_GROUPS_KEPT = 4  # row groups whose values a reader keeps in memory
F = TypeVar("F")  # an open file of pyarrow


@contextlib.contextmanager
def damage_found(path: Path) -> Iterator[None]:
    """Raise FormatError, in one line, for any error that pyarrow raises."""
    try:
        yield
    except FormatError:
        raise
    except Exception as error:
        text = in_one_line(error)
        reason = f"pyarrow cannot read it: {type(error).__name__}: {text[:200]}"
        raise FormatError(str(path), 0, reason) from None


def checked(
    batches: Callable[[], Iterable[pyarrow.RecordBatch]], path: Path
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the record batches of a file; each is fully validated before a value is read."""
    with damage_found(path):
        for batch in batches():
            batch.validate(full=True)
            yield batch


def records_of(
    path: Path,
    columns: Columns,
    open_file: Callable[[Path, CappedFile], tuple[F, list[str]]],
    batches: Callable[[F, CappedFile], Iterator[pyarrow.RecordBatch]],
    bad: BadRecords,
) -> Iterator[Record]:
    """Yield the records of a file. open_file: returns its reader and column names; batches: reads from the reader."""
    with CappedFile(path) as file:
        reader, names = open_file(path, file)
        require_columns(path, columns, names)
        yield from rows(batches(reader, file), columns, path, bad)


def objects_of(
    path: Path,
    open_file: Callable[[Path, CappedFile], tuple[F, list[str]]],
    batches: Callable[[F, CappedFile], Iterator[pyarrow.RecordBatch]],
) -> Iterator[JsonObject]:
    """Yield the records of a file with the columns that JSON can represent; a null becomes None."""
    with CappedFile(path) as file:
        reader, _ = open_file(path, file)
        for batch in batches(reader, file):
            names = [part.name for part in batch.schema if _is_plain(part.type)]
            for at in range(0, batch.num_rows, BATCH_ROWS):
                with damage_found(path):
                    found: list[JsonObject] = batch.select(names).slice(at, BATCH_ROWS).to_pylist()
                yield from found


def _is_plain(kind: pyarrow.DataType) -> bool:
    """Return whether the values of a type are strings, numbers, booleans, or lists and objects of these."""
    import pyarrow

    types = pyarrow.types
    if types.is_dictionary(kind):
        return _is_plain(kind.value_type)
    if _is_list(kind):
        return _is_plain(kind.value_type)
    if types.is_struct(kind):
        return all(_is_plain(kind.field(i).type) for i in range(kind.num_fields))
    checks = (
        types.is_string,
        types.is_large_string,
        types.is_string_view,
        types.is_integer,
        types.is_floating,
        types.is_boolean,
        types.is_null,
    )
    return any(check(kind) for check in checks)


def _is_list(kind: pyarrow.DataType) -> bool:
    """Return whether a type is a list type."""
    import pyarrow

    types = pyarrow.types
    checks = (
        types.is_list,
        types.is_large_list,
        types.is_fixed_size_list,
        types.is_list_view,
        types.is_large_list_view,
    )
    return any(check(kind) for check in checks)


def rows(
    batches: Iterator[pyarrow.RecordBatch], columns: Columns, path: Path, bad: BadRecords = FAIL
) -> Iterator[Record]:
    """Yield the records of record batches. A record with a null is bad.

    Raise FormatError for a wanted column that has neither text nor numbers.
    """
    number = 0
    for batch in batches:
        for at in range(0, batch.num_rows, BATCH_ROWS):
            part = batch.slice(at, BATCH_ROWS)
            try:
                found = _records(part, columns, path, number)
            except _NullError:
                if not bad.drops:
                    raise
                found = _complete(part, columns, path, number, bad)
            yield from found
            number += part.num_rows


class _NullError(FormatError):
    """A null in a record."""


def _complete(
    part: pyarrow.RecordBatch, columns: Columns, path: Path, number: int, bad: BadRecords
) -> list[Record]:
    """Return the records without a null, checked one after another; count the others."""
    found: list[Record] = []
    for row in range(part.num_rows):
        try:
            found += _records(part.slice(row, 1), columns, path, number + row)
        except _NullError as error:
            bad.found(error)
    return found


def _records(part: pyarrow.RecordBatch, columns: Columns, path: Path, number: int) -> list[Record]:
    """Return the records of a part of a batch. number: the index of the first record, for messages."""
    named = {}
    for name in part.schema.names if columns is None else columns:
        values = _values(part.column(name), name, path, number)
        if values is not None:
            named[name] = values
        elif columns is not None:
            kind = part.schema.field(name).type
            reason = f"column {name!r}: expected text or lists of numbers, got {kind}"
            raise FormatError(str(path), 0, reason)
    return [{name: values[row] for name, values in named.items()} for row in range(part.num_rows)]


def _values(column: pyarrow.Array, name: str, path: Path, number: int) -> list[Value] | None:
    """Return the values of a column; None for a type that no pipeline reads."""
    import pyarrow

    types = pyarrow.types
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    text = any(
        check(kind)
        for check in (
            types.is_string,
            types.is_large_string,
            types.is_string_view,
            types.is_binary,
            types.is_large_binary,
            types.is_binary_view,
        )
    )
    lists = _is_list(kind)
    if not text and not (lists and (types.is_integer(kind.value_type) or types.is_floating(kind.value_type))):
        return None
    if column.null_count or (lists and column.flatten().null_count):
        last = number + len(column) - 1
        place = f"row {number}" if number == last else f"rows {number} to {last}"
        raise _NullError(str(path), 0, f"column {name!r} has a null in {place}")
    if text:
        values: list[Value] = column.to_pylist()
        return values
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        # A cast in pyarrow loses values of a list view whose lists are out of order.
        column = pyarrow.array(column.to_pylist(), pyarrow.large_list(kind.value_type))
    wanted = pyarrow.int64() if types.is_integer(kind.value_type) else pyarrow.float32()
    numbers = column.flatten().cast(wanted).to_numpy(zero_copy_only=False)
    if types.is_fixed_size_list(kind):
        return list(numbers.reshape(len(column), kind.list_size))
    ends = np.asarray(column.offsets)
    return [numbers[a:b] for a, b in zip(ends[:-1] - ends[0], ends[1:] - ends[0], strict=True)]


def in_groups(counts: list[int]) -> Int64:
    """Return the positions (group, index in it) of all records. counts: the records of each group."""
    found = [np.stack([np.full(n, group), np.arange(n)], axis=1) for group, n in enumerate(counts)]
    return np.concatenate([np.empty((0, 2)), *found]).astype(np.int64)


class GroupReader(Generic[F]):
    """A reader of records by group; it caches the values of a few groups.

    batches: a function that reads the record batches of some groups from the open file.
    """

    def __init__(
        self,
        path: Path,
        column: str,
        open_file: Callable[[Path, CappedFile], tuple[F, list[str]]],
        batches: Callable[[F, CappedFile, list[int]], Iterator[pyarrow.RecordBatch]],
    ) -> None:
        self._path, self._column, self._batches = path, column, batches
        self._stream = CappedFile(path)
        self._kept: dict[int, list[Value]] = {}
        self._file, _ = open_file(path, self._stream)

    def read(self, places: Int64, numbers: Int64) -> list[Value | None]:
        found: list[Value | None] = [None] * len(places)
        for group in np.unique(places[:, 0]).tolist():
            values = self._values(group)
            for slot in np.flatnonzero(places[:, 0] == group):
                if places[slot, 1] >= len(values):
                    reason = f"row group {group} has {len(values)} rows: the file changed while it was read"
                    raise FormatError(str(self._path), 0, reason)
                found[slot] = values[places[slot, 1]]
        return found

    def _values(self, group: int) -> list[Value]:
        if group not in self._kept:
            named = rows(self._batches(self._file, self._stream, [group]), (self._column,), self._path)
            last = list(self._kept.items())[-_GROUPS_KEPT + 1 :]
            self._kept = {**dict(last), group: [row[self._column] for row in named]}
        return self._kept[group]
