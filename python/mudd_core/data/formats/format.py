"""What a format of files gives: records, how a file of it is recognised, and what happens to bad records.

A record that cannot be read ends the start, or is dropped and counted (data.bad_records).
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
Columns = tuple[str, ...] | None  # None: all


class BadRecords:
    """The bad records that readers find in files.

    drops: False raises the error of the first one. Damage that hides the place of the next record always ends the
    reading.
    """

    def __init__(self, drops: bool = False) -> None:
        self.drops = drops
        self.first = ""  # the message of the first one
        self._counts: dict[str, int] = {}  # by file

    @property
    def count(self) -> int:
        """Dropped records of all files."""
        return sum(self._counts.values())

    def count_of(self, files: Iterable[Path]) -> int:
        """Return the dropped records of some files."""
        return sum(self._counts.get(str(file), 0) for file in files)

    def begin(self, file: str) -> None:
        """Count the records of a file from 0: it is read again."""
        self._counts.pop(file, None)

    def found(self, error: FormatError) -> None:
        """Count a record; raise its error if bad records are not dropped."""
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
    """Reads the records of a file from its beginning, in bounded memory."""

    def __call__(self, path: Path, columns: Columns, bad: BadRecords = FAIL, /) -> Iterator[Record]: ...


class Objects(Protocol):
    """Reads records whose members are lists and objects too."""

    def __call__(self, path: Path, bad: BadRecords = FAIL, /) -> Iterator[JsonObject]: ...


class Reader(Protocol):
    """An open file whose records are read by their places."""

    def read(self, places: Int64, numbers: Int64) -> list[Value | None]:
        """The values of the column at these places; numbers: of the records, for messages."""


def _no_fault(path: Path) -> str:
    return ""


def _every_file(path: Path) -> bool:
    return True


@dataclass(frozen=True)
class ByNumber:
    """How records of a file are read in any order.

    places: [n, 2], two numbers for each record that the format understands. reader: opens a file for one column.
    in_groups: a record costs the reading of its row group. fault: why a file can be read in order alone, or empty.
    """

    places: Callable[[Path], Int64]
    reader: Callable[[Path, str], Reader]
    in_groups: bool = False
    fault: Callable[[Path], str] = _no_fault


@dataclass(frozen=True)
class Format:
    """One format of files.

    endings: of names, in lower case. is_start: whether these are the first bytes of such a file. records: reads a file
    from its beginning, in bounded memory; UserError if a column is not there at all, FormatError for damage. holds: one
    text a file, records with columns, or ids alone. objects: reads records whose members are lists and objects too,
    None for a format without them. has: whether a file with one of the endings has this format.
    """

    name: str
    endings: tuple[str, ...]
    is_start: Callable[[bytes], bool]
    records: Records
    holds: Literal["text", "records", "ids"] = "records"
    by_number: ByNumber | None = None
    objects: Objects | None = None
    has: Callable[[Path], bool] = _every_file


def require_columns(path: Path, wanted: Columns, there: list[str]) -> None:
    """UserError with the names that are there, if one of `wanted` is not."""
    for name in wanted or ():
        if name not in there:
            names = ", ".join(sorted(there)[:20]) or "none"
            raise UserError(f"[data.column] expected a column of {path}, got {name!r}; those there: {names}")


def text_of(value: Value | None, path: Path, number: int, column: str) -> str:
    """A text out of a record; FormatError if it is none. number: of the record, for the message."""
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
    """Whole numbers out of a record; FormatError if they are none."""
    if isinstance(value, np.ndarray) and value.dtype == np.int64:
        return value.astype(np.int64, copy=False)
    found = "nothing" if value is None else "text" if isinstance(value, str | bytes) else "fractions"
    raise FormatError(str(path), 0, f"record {number}: expected whole numbers in {column!r}, got {found}")


def require_ids(ids: Int64, vocab_size: int, path: Path, number: int, lowest: int = 0) -> None:
    """FormatError for an id that no model of this vocabulary has."""
    if ids.size and (int(ids.min()) < lowest or int(ids.max()) >= vocab_size):
        wrong = int(ids.min()) if int(ids.min()) < lowest else int(ids.max())
        raise FormatError(
            str(path), 0, f"record {number}: expected ids from {lowest} to {vocab_size - 1}, got {wrong}"
        )
