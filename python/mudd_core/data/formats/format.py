"""The interface of a file format: its records, the recognition of its files, and the rule for bad records.

A record that cannot be read stops the start, or is dropped and counted (data.bad_records).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import numpy as np

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import Float32, Int64, JsonObject

Value: TypeAlias = "str | bytes | Int64 | Float32"
Record = Mapping[str, Value]
Columns = tuple[str, ...] | None  # None: all columns


class BadRecords:
    """A counter of the bad records that readers find in files.

    drops: False raises the error of the first one. Damage that hides the position of the next record is always an
    error.
    """

    def __init__(self, drops: bool = False) -> None:
        self.drops = drops
        self.first = ""  # the message of the first bad record
        self._counts: dict[str, int] = {}  # counts by file

    @property
    def count(self) -> int:
        """The number of dropped records in all files."""
        return sum(self._counts.values())

    def count_of(self, files: Iterable[Path]) -> int:
        """Return the number of dropped records in some files."""
        return sum(self._counts.get(str(file), 0) for file in files)

    def begin(self, file: str) -> None:
        """Reset the count of a file before it is read again."""
        self._counts.pop(file, None)

    def found(self, error: FormatError) -> None:
        """Count a bad record; raise its error if bad records are not dropped."""
        if not self.drops:
            raise error
        self.first = self.first or str(error)
        self._counts[error.file] = self._counts.get(error.file, 0) + 1


FAIL = BadRecords()


def dropped_note(count: int, first: str) -> str:
    """Return the line about dropped records; empty if there are none."""
    if not count:
        return ""
    return f"{count:,} bad record{'s' * (count != 1)} dropped (data.bad_records=drop), the first: {first}"


class Records(Protocol):
    """A function that reads the records of a file from its start, in bounded memory."""

    def __call__(self, path: Path, columns: Columns, bad: BadRecords = FAIL, /) -> Iterator[Record]: ...


class Objects(Protocol):
    """A function that reads records whose values may also be lists and objects."""

    def __call__(self, path: Path, bad: BadRecords = FAIL, /) -> Iterator[JsonObject]: ...


class Reader(Protocol):
    """An open file whose records are read by their positions."""

    def read(self, places: Int64, numbers: Int64) -> list[Value | None]:
        """Return the values of the column at these positions. numbers: indices of the records, for messages."""


def _no_fault(path: Path) -> str:
    return ""


def _every_file(path: Path) -> bool:
    return True


@dataclass(frozen=True)
class ByNumber:
    """The functions that read records of a file in any order.

    places: returns [n, 2], two integers for each record that the format understands. reader: opens a file for one
    column. in_groups: reading a record requires its whole row group. fault: returns the reason why a file can only be
    read in order; empty if there is none.
    """

    places: Callable[[Path], Int64]
    reader: Callable[[Path, str], Reader]
    in_groups: bool = False
    fault: Callable[[Path], str] = _no_fault


@dataclass(frozen=True)
class Format:
    """One file format.

    endings: suffixes of names, in lower case. is_start: whether a file of this format may start with these bytes.
    records: reads a file from its start in bounded memory; it raises UserError if a column is missing everywhere,
    FormatError for damage. holds: the content of a file: one document, records with columns, or only ids. objects:
    reads records whose values may be lists and objects, None if the format has none. has: whether a file with one of
    the endings has this format.
    """

    name: str
    endings: tuple[str, ...]
    is_start: Callable[[bytes], bool]
    records: Records
    holds: Literal["text", "records", "ids"] = "records"
    by_number: ByNumber | None = None
    objects: Objects | None = None
    has: Callable[[Path], bool] = _every_file


_CONVERSATIONS = {"messages", "completion", "chosen"}  # keys of records that data.pipeline=chat reads


def require_columns(path: Path, wanted: Columns, there: list[str]) -> None:
    """Raise UserError with the names of the existing columns if one of `wanted` is missing."""
    for name in wanted or ():
        if name not in there:
            names = ", ".join(sorted(there)[:20]) or "none"
            hint = "; data.pipeline=chat reads conversations" if _CONVERSATIONS & set(there) else ""
            raise UserError(f"[data.column] expected a column of {path}, got {name!r}; it has {names}{hint}")


def text_of(value: Value | None, path: Path, number: int, column: str) -> str:
    """Return the string in a record; raise FormatError if the value is not a string.

    number: index of the record, for messages.
    """
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            reason = f"record {number}: {column!r} is not UTF-8 ({error.reason})"
            raise FormatError(str(path), 0, reason) from None
    if isinstance(value, str):
        return value
    found = "nothing" if value is None else "numbers"
    raise FormatError(str(path), 0, f"record {number}: expected text in {column!r}, got {found}")


def ids_of(value: Value | None, path: Path, number: int, column: str) -> Int64:
    """Return the integers in a record; raise FormatError if the value has another type."""
    if isinstance(value, np.ndarray) and value.dtype == np.int64:
        return value.astype(np.int64, copy=False)
    found = "nothing" if value is None else "text" if isinstance(value, str | bytes) else "floats"
    raise FormatError(str(path), 0, f"record {number}: expected whole numbers in {column!r}, got {found}")


def require_ids(ids: Int64, vocab_size: int, path: Path, number: int, lowest: int = 0) -> None:
    """Raise FormatError for an id that is outside the vocabulary."""
    if ids.size and (int(ids.min()) < lowest or int(ids.max()) >= vocab_size):
        wrong = int(ids.min()) if int(ids.min()) < lowest else int(ids.max())
        raise FormatError(
            str(path), 0, f"record {number}: expected ids from {lowest} to {vocab_size - 1}, got {wrong}"
        )
