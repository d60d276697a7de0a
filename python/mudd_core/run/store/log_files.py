"""The append-only files of a run: metrics.jsonl, samples.jsonl, events.jsonl and TensorBoard.

A full disk does not end a run: lines that cannot be written wait in memory. A resume truncates each log at the step
from which it continues.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mudd_core import _core
from mudd_core.base.framing import EventFiles
from mudd_core.base.regular_files import open_to_append, read_bytes
from mudd_core.base.types import Json
from mudd_core.checkpoint import Checkpoint
from mudd_core.config import Config, Difference
from mudd_core.engine.memory import peak_bytes
from mudd_core.run.records.events import (
    EventName,
    Rewind,
    Sample,
    StepRecord,
    Summary,
    Validation,
    numbers_of,
)
from mudd_core.run.records.journal import Listener
from mudd_core.run.records.machine import MACHINE, PEAK_MEMORY, command_facts, machine_facts
from mudd_core.run.records.phases import PHASES
from mudd_core.run.store.metrics import Row, read_rows, rows_up_to
from mudd_core.run.store.run_folder import BOARD, EVENTS, METRICS, SAMPLES, RunFolder


def plain(value: Any) -> Any:
    """Return a value for JSON: non-finite numbers become null at any depth."""
    if isinstance(value, Mapping):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class LineFile:
    """A file of JSON lines. Each line is handed to the operating system at once, so that a killed process loses none.

    Lines that a full disk rejects wait in memory. They are written before later lines, so no line stays incomplete.
    Until then every call raises the OSError.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_to_append(path, buffering=0)
        weakref.finalize(self, self._file.close)  # closes the file if the Trainer is garbage-collected
        self._waiting = bytearray()

    def append(self, row: Mapping[str, Any]) -> None:
        """Append an object as one line; non-finite numbers become null."""
        self.line(json.dumps(plain(row), allow_nan=False).encode())

    def line(self, line: bytes) -> None:
        """Append one line of text."""
        self._waiting += line + b"\n"
        self._write()

    def sync(self) -> None:
        """Sync the lines to disk."""
        self._write()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Try once more to write the waiting lines, and close the file."""
        try:
            if not self._file.closed:
                self._write()
        finally:
            self._file.close()

    def _write(self) -> None:
        while self._waiting:
            del self._waiting[: self._file.write(self._waiting)]


class MetricsLog(LineFile):
    """metrics.jsonl; every entry needs a 'step'. `sync` is called before a checkpoint is committed."""

    def __init__(self, path: Path, *, resumed_step: int = 0, rows: Iterable[Row] | None = None) -> None:
        """Open the log; remove entries after the resumed step and an incomplete last line. rows: the log's entries;
        None: read them.
        """
        if os.path.lexists(path):
            kept = [row for row in (read_rows(path) if rows is None else rows) if row["step"] <= resumed_step]
            text = "".join(json.dumps(row) + "\n" for row in kept).encode()
            if text != read_bytes(path, links=False):  # an unchanged file keeps the time of its last entry
                _core.replace_file(str(path), text)
        super().__init__(path)


class SampleLog:
    """samples.jsonl, truncated at the resumed step; created with the first sample.

    last: the step of the last sample, or -1.
    """

    def __init__(self, folder: RunFolder, *, resumed_step: int) -> None:
        self._folder, self._step = folder, resumed_step
        self._lines: MetricsLog | None = None
        self.last = -1
        if os.path.lexists(folder.samples_file):
            self._lines = MetricsLog(folder.samples_file, resumed_step=resumed_step)
            self.last = max((row["step"] for row in read_rows(folder.samples_file)), default=-1)

    def append(self, sample: Sample) -> None:
        """Append a sample. Raise OSError if that fails; the next call then tries again."""
        self.last = sample.step
        self._lines = self._lines or MetricsLog(self._folder.samples_file, resumed_step=self._step)
        self._lines.append(asdict(sample))

    def sync(self) -> None:
        """Sync the samples to disk."""
        if self._lines is not None:
            self._lines.sync()

    def close(self) -> None:
        """Write the waiting lines and close the file."""
        if self._lines is not None:
            self._lines.close()


class Lenient(Listener):
    """A listener that writes files. Write errors cause one warning per file."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._warned: set[str] = set()

    def place(self, name: str) -> str:
        """Return the file or folder of a log, for a message."""
        return f"{self._folder}/{name}"

    def ended(self, summary: Summary, last: StepRecord | None, tail: Mapping[str, float]) -> None:
        if last is not None:
            self.took_step(last, logged=True, seconds_left=0.0)

    @contextlib.contextmanager
    def _going_on(self, name: str) -> Iterator[None]:
        """Convert OSErrors of a log into one warning."""
        try:
            yield
        except OSError as error:
            self.warn(name, f"{self.place(name)}: {error.strerror}; the run continues")

    def warn(self, name: str, text: str) -> None:
        """Print the first warning about a log."""
        if name not in self._warned:
            self._warned.add(name)
            with contextlib.suppress(OSError):  # stdout may be on the same full disk
                print(f"warning: {text}", file=sys.stderr)


class Board(Lenient):
    """The metrics and samples of a run in TensorBoard."""

    log: EventFiles | None = None

    def open(self, step: int, config: Config) -> None:
        """Continue the events after this step."""
        self.log = EventFiles(self._folder.board_folder, step, config.log.flush_every)

    def took_step(self, record: StepRecord, *, logged: bool, seconds_left: float) -> None:
        """Write the metrics of a logged update, without its times; statistics keep their names as tags."""
        if logged:
            self._row(replace(record, phases={}, hidden=0.0, load={}).row(), record.statistics)

    def validated(self, result: Validation) -> None:
        self._row(result.row(), {})

    def _row(self, row: Row, statistics: Mapping[str, float]) -> None:
        assert self.log is not None
        with self._going_on(BOARD):
            self.log.append(row["step"], dict(numbers_of("valid" if "val_loss" in row else "train", row)))
            self.log.add(row["step"], statistics)

    def sampled(self, sample: Sample) -> None:
        self.tags(sample.step, {}, {"sample": sample.prompt + sample.text})

    def tags(self, step: int, scalars: Mapping[str, float], texts: Mapping[str, str] | None = None) -> None:
        """Write further tags."""
        assert self.log is not None
        if scalars or texts:
            with self._going_on(BOARD):
                self.log.add(step, scalars, texts)


def _start() -> dict[str, Json]:
    """Return the fields that a start and a resume have."""
    return {**command_facts(), MACHINE: machine_facts()}


class Files(Lenient):
    """metrics.jsonl, samples.jsonl and events.jsonl of a run."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(folder)
        self.metrics: MetricsLog | None = None
        self.samples: SampleLog | None = None
        self.events: LineFile | None = None
        self._waiting: list[str] = []  # warnings that wait until their file is open

    def open(self, step: int, config: Config) -> None:
        """Open the files and remove entries after the step. Raise OSError if one cannot be written."""
        kept = rows_up_to(self._folder, step)
        self.metrics = MetricsLog(self._folder.metrics_file, resumed_step=step, rows=kept)
        self.samples = SampleLog(self._folder, resumed_step=step)
        if self.events is None:
            self.events = LineFile(self._folder.events_file)

    def event(self, name: str, **facts: Json) -> None:
        """Write an event. A resumed run may have other events than an uninterrupted run."""
        assert self.events is not None
        with self._going_on(EVENTS):
            self.events.append({"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "event": name, **facts})

    def started(self, job: Mapping[str, Json]) -> None:
        self.event(EventName.STARTED, **job, **_start())
        self._write_waiting()

    def resumed(self, checkpoint: Checkpoint, changed: Sequence[Difference], job: Mapping[str, Json]) -> None:
        names: dict[str, Json] = {"changed": [str(change) for change in changed]}
        self.event(EventName.RESUMED, step=checkpoint.step, **names, **job, **_start())
        self._write_waiting()

    def warned(self, text: str, step: int | None = None) -> None:
        """Write a warning about a step. Other warnings wait for the start of the run."""
        if step is not None:
            self.event(EventName.WARNING, step=step, text=text)
        elif text not in self._waiting:
            self._waiting.append(text)

    def _write_waiting(self) -> None:
        for text in self._waiting:
            self.event(EventName.WARNING, text=text)

    def took_step(self, record: StepRecord, *, logged: bool, seconds_left: float) -> None:
        if logged:
            self._row({**record.row(), **record.statistics})

    def validated(self, result: Validation) -> None:
        self._row(result.row())

    def _row(self, row: Row) -> None:
        assert self.metrics is not None
        with self._going_on(METRICS):
            self.metrics.append(row)

    def source_lost(self, step: int, place: str, reason: str, retry: int, seconds: float) -> None:
        self.event(EventName.SOURCE_LOST, step=step, file=place, reason=reason, retry=retry, wait=seconds)

    def skipped(self, step: int, reason: str, where: str) -> None:
        self.event(EventName.SKIPPED, step=step, reason=reason, where=where)

    def rewound(self, rewind: Rewind, count: int, allowed: int) -> None:
        self.event(EventName.REWOUND, **asdict(rewind))

    @property
    def last_sample(self) -> int:
        """Return the step of the last sample; -1 if there is none, and on ranks other than 0."""
        return self.samples.last if self.samples is not None else -1

    def sampled(self, sample: Sample) -> None:
        assert self.samples is not None
        with self._going_on(SAMPLES):
            self.samples.append(sample)

    def not_sampled(self, step: int, reason: str) -> None:
        self.event(EventName.NO_SAMPLE, step=step, reason=reason)

    def saved(self, step: int, seconds: float) -> None:
        self.event(EventName.SAVED, step=step, seconds=seconds, **{PEAK_MEMORY: peak_bytes()})

    def ended(self, summary: Summary, last: StepRecord | None, tail: Mapping[str, float]) -> None:
        super().ended(summary, last, tail)
        name = EventName.STOPPED if summary.stopped else EventName.FINISHED
        reason = "train.patience" if summary.out_of_patience else summary.stopped
        facts: dict[str, Json] = {PEAK_MEMORY: peak_bytes(), PHASES: dict(tail)}
        self.event(name, step=summary.step, reason=reason, **facts)
