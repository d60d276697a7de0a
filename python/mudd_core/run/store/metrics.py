"""Metrics: one JSON object a line in metrics.jsonl, texts in samples.jsonl the same way.

A disk that is full costs no row: what it refuses waits in memory until it takes it. On resume the log is cut back to
the resumed step: it ends up equal to an unbroken run's except for times.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mudd_core import _core
from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.members import build
from mudd_core.base.regular_files import open_binary, open_to_append, read_bytes
from mudd_core.run.records.events import Sample, Validation
from mudd_core.run.records.facts import WINDOW
from mudd_core.run.store.run_folder import RunFolder

Row = dict[str, Any]
_TAIL_BYTES = 1 << 16
_LONGEST_NUMBER = 300  # digits; a float holds up to 1.8e308


def plain(value: Any) -> Any:
    """A value as JSON has it: numbers that are not finite become null, wherever they stand."""
    if isinstance(value, Mapping):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def numbers_of(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """The numbers in a value of a row; those of lists are named name/0, name/1 and so on."""
    if isinstance(value, int | float):
        yield name, float(value)
    elif isinstance(value, Mapping):
        for member, entry in value.items():
            if member != "step":
                yield from numbers_of(f"{name}/{member}", entry)
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from numbers_of(f"{name}/{index}", entry)


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a log; a torn last line is left out, a damaged one in the middle is a FormatError."""
    if not os.path.lexists(path):
        return
    try:
        lines = read_bytes(path, links=False).split(b"\n")
    except OSError as error:
        raise UserError(f"[workdir] {path}: {error.strerror}") from error
    lines.pop()  # empty, or a line that was never finished
    offset = 0
    for number, line in enumerate(lines, 1):
        row = _row_of(line)
        if isinstance(row, str):
            if number == len(lines):  # torn by a power cut that kept the length
                return
            raise FormatError(str(path), offset, f"line {number} is damaged: {row}; restore it or delete it")
        yield row
        offset += len(line) + 1


def rows_of(folder: RunFolder) -> Iterator[Row]:
    """The rows of a run's metrics.jsonl, as read_rows."""
    return read_rows(folder.metrics_file)


@dataclass(frozen=True)
class RecordedValidations:
    """Validations in metrics.jsonl up to a step, and the last updates there.

    losses: steps and losses, NaN for one that was not finite or has no targets. last: the validation of that step, if
    it has one. updates: steps and losses of the last updates, without skipped ones and without auxiliary losses.
    """

    losses: list[tuple[int, float]]
    last: Validation | None
    updates: list[tuple[int, float]] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, raw: Row, folder: RunFolder) -> RecordedValidations:
        """These values from JSON of their dict, which another rank has read in a folder."""
        losses, updates = (
            [(int(step), float(loss)) for step, loss in raw[name]] for name in ("losses", "updates")
        )
        last = raw["last"]
        return cls(losses, None if last is None else build(Validation, last, folder.metrics_file), updates)


def validations_of(folder: RunFolder, step: int) -> RecordedValidations:
    """The validations of metrics.jsonl up to a step; FormatError if the row of the step itself is not one."""
    logged = [row for row in rows_of(folder) if row["step"] <= step]
    rows = [row for row in logged if "val_loss" in row]
    here = [row for row in rows if row["step"] == step]
    where = f"validation of step {step}: "
    last = build(Validation, here[-1], folder.metrics_file, where) if here else None
    updates = [row for row in logged if isinstance(row.get("loss"), float) and not row.get("skipped")]
    return RecordedValidations(
        [(row["step"], _loss_of(row)) for row in rows],
        last,
        [(row["step"], row["loss"] - _aux_loss_of(row)) for row in updates[-WINDOW:]],
    )


def _loss_of(row: Row) -> float:
    """Return the loss of a validation; NaN if it was not finite or no target counted."""
    loss = row["val_loss"]
    return float(loss) if isinstance(loss, int | float) and row.get("targets") != 0 else math.nan


def _aux_loss_of(row: Row) -> float:
    """The auxiliary loss of an update; 0 for a model without one."""
    found = row.get("aux_loss")
    return found if isinstance(found, float) else 0.0


def last_peak_share(folder: RunFolder) -> float | None:
    """The fraction of the peak in the last training row of metrics.jsonl; None where its end has none."""
    try:
        with open_binary(folder.metrics_file, links=False) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return None
    for line in reversed(lines):
        row = _row_of(line)
        share = None if isinstance(row, str) else row.get("peak_share")
        if isinstance(share, float) and share > 0:
            return share
    return None


def samples_of(folder: RunFolder) -> list[Sample]:
    """The texts of a run in the order of their steps; none without sample.every. FormatError for a damaged file."""
    file = folder.samples_file
    return [build(Sample, row, file, f"text of step {row['step']}: ") for row in read_rows(file)]


def _whole(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _row_of(line: bytes) -> Row | str:
    """The row in a line, or what is wrong with it."""
    try:
        row = json.loads(line, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        return str(error)
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        return "expected an object with a whole number 'step'"
    return row


class LineFile:
    """Appends JSON objects, a line each, handed to the system at once: a killed process loses none.

    What a full disk refuses waits in memory and goes first once the disk takes it, so no line is torn for good. The
    OSError is raised all the same, by every call until then.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_to_append(path, buffering=0)
        weakref.finalize(self, self._file.close)  # of a Trainer that is dropped
        self._waiting = bytearray()

    def append(self, row: Mapping[str, Any]) -> None:
        """One line; numbers that are not finite become null."""
        self.line(json.dumps(plain(row), allow_nan=False).encode())

    def line(self, line: bytes) -> None:
        """One line of text."""
        self._waiting += line + b"\n"
        self._write()

    def sync(self) -> None:
        """Make the lines survive a power cut."""
        self._write()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Try once more to write what waits, and close."""
        try:
            if not self._file.closed:
                self._write()
        finally:
            self._file.close()

    def _write(self) -> None:
        while self._waiting:
            del self._waiting[: self._file.write(self._waiting)]


class MetricsLog(LineFile):
    """metrics.jsonl; every row needs a 'step'. `sync` is called before a checkpoint is committed."""

    def __init__(self, path: Path, *, resumed_step: int = 0) -> None:
        """Open the log and drop rows behind the resumed step and a torn last line."""
        self._cut_back(path, resumed_step)
        super().__init__(path)

    @classmethod
    def of(cls, folder: RunFolder, *, resumed_step: int) -> MetricsLog:
        """metrics.jsonl of a run."""
        return cls(folder.metrics_file, resumed_step=resumed_step)

    def _cut_back(self, path: Path, step: int) -> None:
        if os.path.lexists(path):
            kept = [row for row in read_rows(path) if row["step"] <= step]
            _core.replace_file(str(path), "".join(json.dumps(row) + "\n" for row in kept).encode())


class SampleLog:
    """samples.jsonl, cut back to the resumed step; the file is made with the first text. last: its last step, or -1."""

    def __init__(self, folder: RunFolder, *, resumed_step: int) -> None:
        self._folder, self._step = folder, resumed_step
        self._lines: MetricsLog | None = None
        self.last = -1
        if os.path.lexists(folder.samples_file):
            self._lines = self._opened()
            self.last = max((row["step"] for row in read_rows(folder.samples_file)), default=-1)

    def _opened(self) -> MetricsLog:
        return self._lines or MetricsLog(self._folder.samples_file, resumed_step=self._step)

    def append(self, sample: Sample) -> None:
        """Append one text; OSError where the disk refuses it, which is tried again with the next one."""
        self.last = sample.step
        self._lines = self._opened()
        self._lines.append(dataclasses.asdict(sample))

    def sync(self) -> None:
        """Make the texts survive a power cut."""
        if self._lines is not None:
            self._lines.sync()

    def close(self) -> None:
        """Write the rest and close."""
        if self._lines is not None:
            self._lines.close()


def event_lines(folder: RunFolder) -> LineFile:
    """events.jsonl of a run, opened to append."""
    return LineFile(folder.events_file)
