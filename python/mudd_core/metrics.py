"""Metrics: one JSON object a line in metrics.jsonl, and the same numbers as TensorBoard events.

On resume the log is cut back to the resumed step: it ends up equal to an unbroken run's except for times.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mudd_core import _core
from mudd_core.event_file import EventFile

Row = dict[str, Any]


def _plain(row: Mapping[str, Any]) -> Row:
    """JSON has no NaN or infinity: they become null."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """The numbers in a value of a row; those of lists are named name/0, name/1 and so on."""
    if isinstance(value, int | float):
        yield name, float(value)
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _numbers(f"{name}/{index}", entry)


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a log; a torn last line is left out, a damaged one in the middle is a ValueError."""
    if not path.exists():
        return
    data = path.read_bytes()
    lines = data.split(b"\n")
    lines.pop()  # empty, or a line that was never finished
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == len(lines):  # torn by a power cut that kept the length
                return
            raise ValueError(f"[metrics] {path} line {number}: {error}") from error
        yield row


class MetricsLog:
    """Appends rows; every row is handed to the system at once, so that a killed process loses none."""

    def __init__(self, path: Path, *, resumed_step: int = 0) -> None:
        """Open the log and drop rows behind the resumed step and a torn last line."""
        self.path = path
        self._cut_back(resumed_step)
        self._file = path.open("a", encoding="utf-8")

    def _cut_back(self, step: int) -> None:
        if not self.path.exists():
            return
        kept = [row for row in read_rows(self.path) if row.get("step", 0) <= step]
        text = "".join(json.dumps(row) + "\n" for row in kept)
        _core.replace_file(str(self.path), text.encode())
        self.last_row = kept[-1] if kept else None

    last_row: Row | None = None

    def append(self, row: Mapping[str, Any]) -> None:
        """One row; it needs a 'step'."""
        self._file.write(json.dumps(_plain(row)) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """Make the rows survive a power cut; called before a checkpoint is committed."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; all rows are in it."""
        self._file.close()


class Board:
    """The rows as TensorBoard events; the file is made with the first row."""

    def __init__(self, folder: Path, *, resumed_step: int = 0) -> None:
        self._folder = folder
        self._resumed_step = resumed_step
        self._file: EventFile | None = None

    def append(self, row: Mapping[str, Any]) -> None:
        """Every number of the row under its name; `step` is the abscissa."""
        if self._file is None:
            self._file = EventFile(self._folder, self._resumed_step + 1 if self._resumed_step else None)
        group = "valid" if "val_loss" in row else "train"
        numbers = [pair for name, value in row.items() if name != "step" for pair in _numbers(name, value)]
        self._file.scalars(row["step"], {f"{group}/{name}": value for name, value in numbers})

    def flush(self) -> None:
        """Hand everything to the system."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Write the rest and close."""
        if self._file is not None:
            self._file.close()
