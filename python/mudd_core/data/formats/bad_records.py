"""The rule of data.bad_records: a record that cannot be read ends the start, or is dropped and counted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mudd_core.base.errors import FormatError


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
