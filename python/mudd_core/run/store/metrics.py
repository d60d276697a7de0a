"""Readers of metrics.jsonl, samples.jsonl and the end of events.jsonl: one JSON object per line, in order."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.members import build
from mudd_core.base.regular_files import open_binary, read_bytes
from mudd_core.base.types import JsonObject
from mudd_core.run.records.events import Sample, Validation
from mudd_core.run.records.facts import WINDOW
from mudd_core.run.store.run_folder import RunFolder

Row = dict[str, Any]
_TAIL_BYTES = 1 << 16
_LONGEST_NUMBER = 300  # most digits of an integer, because a float is at most 1.8e308


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the entries of a log. Skip an incomplete last line; raise FormatError for a damaged line before it."""
    if not os.path.lexists(path):
        return
    try:
        lines = read_bytes(path, links=False).split(b"\n")
    except OSError as error:
        raise UserError(f"[workdir] {path}: {error.strerror}") from error
    lines.pop()  # the last piece is empty, or an unfinished line
    offset = 0
    for number, line in enumerate(lines, 1):
        row = _row_of(line)
        if isinstance(row, str):
            if number == len(lines):  # a power cut that kept the file's length damaged the last line
                return
            raise FormatError(str(path), offset, f"line {number} is damaged: {row}; restore it or delete it")
        yield row
        offset += len(line) + 1


def rows_of(folder: RunFolder) -> Iterator[Row]:
    """Yield the entries of a run's metrics.jsonl, as read_rows does."""
    return read_rows(folder.metrics_file)


def rows_up_to(folder: RunFolder, step: int) -> list[Row]:
    """Return the entries of a run's metrics.jsonl up to a step, as read_rows does."""
    return [row for row in rows_of(folder) if row["step"] <= step]


@dataclass(frozen=True)
class RecordedValidations:
    """Validations in metrics.jsonl up to a step, and the last updates.

    losses: steps and losses; a loss is NaN if it was not finite or had no targets. last: the validation of that step,
    if any. updates: steps and losses of the last updates, without skipped updates and without auxiliary losses.
    """

    losses: list[tuple[int, float]]
    last: Validation | None
    updates: list[tuple[int, float]] = dataclasses.field(default_factory=list)

    @classmethod
    def of(cls, raw: Row, folder: RunFolder) -> RecordedValidations:
        """Return the values from a dict in JSON, which another rank has read."""
        losses, updates = (
            [(int(step), float(loss)) for step, loss in raw[name]] for name in ("losses", "updates")
        )
        last = raw["last"]
        return cls(losses, None if last is None else build(Validation, last, folder.metrics_file), updates)


def validations_of(folder: RunFolder, step: int) -> RecordedValidations:
    """Return the validations of metrics.jsonl up to a step; raise FormatError if the step's own entry is malformed."""
    logged = rows_up_to(folder, step)
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
    """Return the loss of a validation; NaN if it was not finite or had no targets."""
    loss = row["val_loss"]
    return float(loss) if isinstance(loss, int | float) and row.get("targets") != 0 else math.nan


def _aux_loss_of(row: Row) -> float:
    """Return the auxiliary loss of an update; 0 for a model without one."""
    found = row.get("aux_loss")
    return found if isinstance(found, float) else 0.0


def last_peak_share(folder: RunFolder) -> float | None:
    """Return the fraction of the peak in the last training entry of metrics.jsonl; None if its end has none."""
    for row in last_rows(folder):
        share = row.get("peak_share")
        if isinstance(share, float) and share > 0:
            return share
    return None


def last_update(folder: RunFolder) -> Row:
    """Return the last entry of an update in the last 64 KiB of metrics.jsonl; empty if there is none."""
    return next((row for row in last_rows(folder) if isinstance(row.get("loss"), float)), {})


def last_rows(folder: RunFolder, size: int = _TAIL_BYTES) -> Iterator[Row]:
    """Yield the undamaged entries in the last `size` bytes of metrics.jsonl, the newest first."""
    try:
        with open_binary(folder.metrics_file, links=False) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            lines = file.read().split(b"\n")
    except OSError:
        return
    for line in reversed(lines):
        row = _row_of(line)
        if not isinstance(row, str):
            yield row


def last_event(folder: RunFolder) -> Row:
    """Return the last line of events.jsonl; empty without an undamaged one."""
    try:
        lines = read_bytes(folder.events_file, links=False).splitlines()
        row = json.loads(lines[-1], parse_int=_whole) if lines else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def events_of(folder: RunFolder) -> list[JsonObject]:
    """Return the events of events.jsonl. A truncated or damaged line is skipped, because no bit depends on it."""
    try:
        lines = read_bytes(folder.events_file, links=False).splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            event = json.loads(line, parse_int=_whole)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("event"), str):
            found.append(event)
    return found


def samples_of(folder: RunFolder) -> list[Sample]:
    """Return the samples of a run in order; empty without sample.every. Raise FormatError for a damaged file."""
    file = folder.samples_file
    return [build(Sample, row, file, f"text of step {row['step']}: ") for row in read_rows(file)]


def _whole(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _row_of(line: bytes) -> Row | str:
    """Return the entry in a line, or a description of the error."""
    try:
        row = json.loads(line, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        return str(error)
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        return "expected an object with a whole number 'step'"
    return row
