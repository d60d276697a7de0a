"""Logs of a run: metrics.jsonl and its copy, samples.jsonl, events.jsonl, TensorBoard. A full disk ends no run."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from mudd_core.base.errors import SaveError, write_error, write_reason
from mudd_core.base.types import Json
from mudd_core.checkpoint import Checkpoint
from mudd_core.config import Config, Difference
from mudd_core.engine.memory import peak_bytes
from mudd_core.run.records.events import EventName, Rewind, Sample, StepRecord, Summary, Validation
from mudd_core.run.records.journal import Listener
from mudd_core.run.records.machine import MACHINE, PEAK_MEMORY, machine_facts
from mudd_core.run.store.event_file import EventFiles
from mudd_core.run.store.metrics import LineFile, MetricsLog, Row, SampleLog, event_lines
from mudd_core.run.store.metrics_file import MetricsFile
from mudd_core.run.store.run_folder import BOARD, EVENTS, METRICS, SAMPLES, RunFolder

_COPY = "log.metrics_file"


class _Lenient(Listener):
    """A listener that writes files. A disk that refuses a line is one warning for each file."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._warned: set[str] = set()

    def place(self, name: str) -> str:
        """Return the file or folder of a log, for a message."""
        return f"{self._folder}/{name}"

    @contextlib.contextmanager
    def _going_on(self, name: str) -> Iterator[None]:
        """Turn an OSError of a log into one warning."""
        try:
            yield
        except OSError as error:
            self.warn(name, f"{self.place(name)}: {error.strerror}; the run goes on")

    def warn(self, name: str, text: str) -> None:
        """Print the first warning about a log."""
        if name not in self._warned:
            self._warned.add(name)
            with contextlib.suppress(OSError):  # the same disk may have the output
                print(f"warning: {text}", file=sys.stderr)


class Board(_Lenient):
    """The rows and texts of a run in TensorBoard."""

    log: EventFiles | None = None

    def open(self, step: int, config: Config) -> None:
        """Continue after this step."""
        self.log = EventFiles(self._folder, resumed_step=step, flush_every=config.log.flush_every)

    def took_step(self, record: StepRecord, *, logged: bool, seconds_left: float) -> None:
        """Write the numbers of an update that is logged; statistics keep their names as tags."""
        if logged:
            self._row(record.row(), record.statistics)

    def ended(self, summary: Summary, last: StepRecord | None) -> None:
        if last is not None:
            self._row(last.row(), last.statistics)

    def validated(self, result: Validation) -> None:
        self._row(result.row(), {})

    def _row(self, row: Row, statistics: Mapping[str, float]) -> None:
        assert self.log is not None
        with self._going_on(BOARD):
            self.log.append(row)
            self.log.add(row["step"], statistics)

    def sampled(self, sample: Sample) -> None:
        self.tags(sample.step, {}, {"sample": sample.prompt + sample.text})

    def tags(self, step: int, scalars: Mapping[str, float], texts: Mapping[str, str] | None = None) -> None:
        """Write further tags."""
        assert self.log is not None
        if scalars or texts:
            with self._going_on(BOARD):
                self.log.add(step, scalars, texts)


class Files(_Lenient):
    """metrics.jsonl and its copy, samples.jsonl, events.jsonl."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__(folder)
        self.metrics: MetricsLog | None = None
        self.copy: MetricsFile | None = None
        self.samples: SampleLog | None = None
        self.events: LineFile | None = None
        self._waiting: list[str] = []  # warnings before there is a file for them

    def open(self, step: int, config: Config) -> None:
        """Open the files; rows after the step are removed. OSError if one of them cannot be written."""
        self.metrics = MetricsLog.of(self._folder, resumed_step=step)
        self.copy = MetricsFile(config, step) if config.log.metrics_file else None
        self.samples = SampleLog(self._folder, resumed_step=step)
        if self.events is None:
            self.events = event_lines(self._folder)

    def place(self, name: str) -> str:
        """Return the file of a log, for a message."""
        return str(self.copy.path) if self.copy is not None and name == _COPY else super().place(name)

    def event(self, name: str, **facts: Json) -> None:
        """Write something that happened, which may differ from the events of an unbroken run."""
        assert self.events is not None
        with self._going_on(EVENTS):
            self.events.append({"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "event": name, **facts})

    def started(self, job: Mapping[str, Json]) -> None:
        self.event(EventName.STARTED, **job, **{MACHINE: machine_facts()})
        self._write_waiting()

    def resumed(self, checkpoint: Checkpoint, changed: Sequence[Difference], job: Mapping[str, Json]) -> None:
        names: dict[str, Json] = {"changed": [str(change) for change in changed]}
        self.event(EventName.RESUMED, step=checkpoint.step, **names, **job, **{MACHINE: machine_facts()})
        self._write_waiting()

    def warned(self, text: str, step: int | None = None) -> None:
        """Write a warning after a step; others wait for the start of the run."""
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
        if self.copy is not None:
            with self._going_on(_COPY):
                self.copy.row(row)

    def object(self, values: Mapping[str, float | str]) -> None:
        """Write one object of a program, where log.metrics_file has these."""
        if self.copy is not None:
            with self._going_on(_COPY):
                self.copy.object(values)

    def result(self, line: str) -> None:
        """Write one line of a validation, where log.metrics_file has a results.txt."""
        if self.copy is not None:
            with self._going_on(_COPY):
                self.copy.result(line)

    def source_lost(self, step: int, place: str, reason: str, retry: int, seconds: float) -> None:
        self.event(EventName.SOURCE_LOST, step=step, file=place, reason=reason, retry=retry, wait=seconds)

    def skipped(self, step: int, reason: str, where: str) -> None:
        self.event(EventName.SKIPPED, step=step, reason=reason, where=where)

    def rewound(self, rewind: Rewind, count: int, allowed: int) -> None:
        self.event(EventName.REWOUND, **asdict(rewind))

    @property
    def last_sample(self) -> int:
        """Return the step of the last text; -1 if there is none, and on other ranks than 0."""
        return self.samples.last if self.samples is not None else -1

    def sampled(self, sample: Sample) -> None:
        assert self.samples is not None
        with self._going_on(SAMPLES):
            self.samples.append(sample)

    def not_sampled(self, step: int, reason: str) -> None:
        self.event(EventName.NO_SAMPLE, step=step, reason=reason)

    def saved(self, step: int, seconds: float) -> None:
        self.event(EventName.SAVED, step=step, seconds=seconds, **{PEAK_MEMORY: peak_bytes()})

    def ended(self, summary: Summary, last: StepRecord | None) -> None:
        if last is not None:
            self.took_step(last, logged=True, seconds_left=0.0)
        name = EventName.STOPPED if summary.stopped else EventName.FINISHED
        reason = "train.patience" if summary.out_of_patience else summary.stopped
        self.event(name, step=summary.step, reason=reason, **{PEAK_MEMORY: peak_bytes()})


class Logs:
    """All logs of a run, opened at a step. Rows that a disk refuses wait, and `sync` requires them."""

    def __init__(self, folder: RunFolder) -> None:
        self.files, self.board = Files(folder), Board(folder)
        self._folder = folder
        self._sync_failed = False

    def open(self, step: int, config: Config) -> None:
        """Open the logs without rows after the step; SaveError if one of them cannot be written."""
        try:
            self.files.open(step, config)
            self.board.open(step, config)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise SaveError(f"[save] the logs in {self._folder}: {where}{write_reason(error)}") from error

    def sync(self) -> None:
        """Make every row of metrics.jsonl and samples.jsonl survive a power cut; SaveError where that fails."""
        files, board = self.files, self.board.log
        assert files.metrics is not None and files.samples is not None and board is not None
        self._sync_failed = True
        logs = ((METRICS, files.metrics.sync), (SAMPLES, files.samples.sync), (BOARD, board.flush))
        for name, write in logs:
            try:
                write()
            except OSError as error:
                raise write_error(files.place(name), error) from error
        self._sync_failed = False

    def close_rows(self) -> None:
        """Close the files that `open` opens again at another step."""
        for log in (self.files.metrics, self.board.log, self.files.copy, self.files.samples):
            if log is not None:
                log.close()

    def close(self) -> None:
        """Close all; SaveError where one of them cannot be written any more, a warning if `sync` has failed before."""
        files = self.files
        logs = {
            METRICS: files.metrics,
            BOARD: self.board.log,
            EVENTS: files.events,
            SAMPLES: files.samples,
            _COPY: files.copy,
        }
        failed: dict[str, str] = {}
        for name, log in logs.items():
            try:
                if log is not None:
                    log.close()
            except OSError as error:
                failed[name] = f"{files.place(name)}: {write_reason(error)}"
        if failed and not self._sync_failed:
            raise SaveError(f"[save] {'; '.join(failed.values())}")
        for name, text in failed.items():
            (self.board if name == BOARD else files).warn(name, text)
