"""Rows out of batches of Arrow columns, for Parquet and Arrow files. Take such files from trusted sources only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mudd_core.base.errors import FormatError
from mudd_core.data.formats.bounded import CappedFile
from mudd_core.data.formats.format import Columns, Record, Value, require_columns

BATCH_ROWS = 256


@contextlib.contextmanager
def damage_found(path: Path) -> Iterator[None]:
    """Raise FormatError, in one line, for whatever pyarrow raises."""
    try:
        yield
    except FormatError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        reason = f"pyarrow cannot read it: {type(error).__name__}: {text[:200]}"
        raise FormatError(str(path), 0, reason) from None


def checked(batches: Callable[[], Iterable[Any]], path: Path) -> Iterator[Any]:
    """The record batches of a file, each checked whole before a value is read."""
    with damage_found(path):
        for batch in batches():
            batch.validate(full=True)
            yield batch


def records_of(
    path: Path,
    columns: Columns,
    open_file: Callable[[Path, CappedFile], tuple[Any, list[str]]],
    batches: Callable[[Any, CappedFile], Iterator[Any]],
) -> Iterator[Record]:
    """The rows of a file. open_file: gives its reader and the names of its columns; batches: reads from the reader."""
    with CappedFile(path) as file:
        reader, names = open_file(path, file)
        require_columns(path, columns, names)
        yield from rows(batches(reader, file), columns, path)


def rows(batches: Iterator[Any], columns: Columns, path: Path) -> Iterator[Record]:
    """The rows of record batches. FormatError for nulls, and for a wanted column that is neither text nor numbers."""
    number = 0
    for batch in batches:
        for at in range(0, batch.num_rows, BATCH_ROWS):
            part = batch.slice(at, BATCH_ROWS)
            named = {}
            for name in part.schema.names if columns is None else columns:
                values = _values(part.column(name), name, path, number)
                if values is not None:
                    named[name] = values
                elif columns is not None:
                    kind = part.schema.field(name).type
                    reason = f"column {name!r}: expected text or lists of numbers, got {kind}"
                    raise FormatError(str(path), 0, reason)
            for row in range(part.num_rows):
                yield {name: values[row] for name, values in named.items()}
            number += part.num_rows


def _values(column: Any, name: str, path: Path, number: int) -> list[Value] | None:
    """The values of a column, None for a type that no pipeline reads."""
    import pyarrow

    types = pyarrow.types
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    text = any(
        check(kind)
        for check in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )
    lists = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not text and not (lists and (types.is_integer(kind.value_type) or types.is_floating(kind.value_type))):
        return None
    if column.null_count or (lists and column.flatten().null_count):
        raise FormatError(
            str(path), 0, f"column {name!r} has a null in rows {number} to {number + len(column) - 1}"
        )
    if text:
        values: list[Value] = column.to_pylist()
        return values
    wanted = pyarrow.int64() if types.is_integer(kind.value_type) else pyarrow.float32()
    numbers = column.flatten().cast(wanted).to_numpy(zero_copy_only=False)
    if types.is_fixed_size_list(kind):
        return list(numbers.reshape(len(column), kind.list_size))
    ends = np.asarray(column.offsets)
    return [numbers[a:b] for a, b in zip(ends[:-1] - ends[0], ends[1:] - ends[0], strict=True)]
