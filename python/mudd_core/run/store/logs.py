"""Logs of a run: metrics.jsonl and its copy, samples.jsonl, TensorBoard, events.jsonl. A full disk ends no run."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from mudd_core.base.errors import SaveError, UserError, write_error, write_reason
from mudd_core.base.regular_files import open_binary, open_to_append
from mudd_core.base.types import Json
from mudd_core.config import Config
from mudd_core.run.records.events import Sample
from mudd_core.run.store.event_file import EventFiles
from mudd_core.run.store.metrics import LineFile, MetricsLog, Row, SampleLog, event_lines
from mudd_core.run.store.metrics_file import MetricsFile, kind_of, lines_file
from mudd_core.run.store.run_folder import BOARD, EVENTS, METRICS, SAMPLES, RunFolder

_COPY = "log.metrics_file"


class Logs:
    """Opened at a step; rows behind it are cut off. Rows that a disk refuses wait, `sync` asks for them again."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._metrics: MetricsLog | None = None
        self._copy: MetricsFile | None = None
        self._samples: SampleLog | None = None
        self._board: EventFiles | None = None
        self._events: LineFile | None = None
        self._warned: set[str] = set()
        self._sync_failed = False

    def open(self, step: int, config: Config) -> None:
        """SaveError where one of them cannot be written."""
        flush_every = config.log.flush_every
        try:
            self._metrics = MetricsLog.of(self._folder, resumed_step=step)
            self._board = EventFiles(self._folder, resumed_step=step, flush_every=flush_every)
            self._copy = MetricsFile(config, step)
            self._samples = SampleLog(self._folder, resumed_step=step)
            if self._events is None:
                self._events = event_lines(self._folder)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise SaveError(f"[save] the logs in {self._folder}: {where}{write_reason(error)}") from error

    def row(self, row: Row, statistics: Mapping[str, float]) -> None:
        """One row of numbers, to metrics.jsonl and to TensorBoard; statistics keep their names as tags."""
        assert self._metrics is not None and self._board is not None
        whole = {**row, **statistics}
        with self._going_on(METRICS):
            self._metrics.append(whole)
        with self._going_on(BOARD):
            self._board.append(row)
            self._board.add(row["step"], statistics)
        self._to_metrics_file(lambda file: file.row(whole))

    def object(self, values: Mapping[str, float | str]) -> None:
        """One object of another program, to log.metrics_file where that has these."""
        self._to_metrics_file(lambda file: file.object(values))

    def result(self, line: str) -> None:
        """One line of a validation, to the results.txt of log.metrics_file where there is one."""
        self._to_metrics_file(lambda file: file.result(line))

    def _to_metrics_file(self, write: Callable[[MetricsFile], None]) -> None:
        assert self._copy is not None
        with self._going_on(_COPY):
            write(self._copy)

    def add_to_board(self, step: int, scalars: Mapping[str, float], texts: Mapping[str, str]) -> None:
        """Further tags of TensorBoard."""
        assert self._board is not None
        with self._going_on(BOARD):
            self._board.add(step, scalars, texts)

    @property
    def last_sample(self) -> int:
        """The step of the last text; -1 where there is none."""
        return self._samples.last if self._samples is not None else -1

    def sample(self, sample: Sample) -> None:
        """One text, to samples.jsonl and to TensorBoard."""
        assert self._samples is not None
        with self._going_on(SAMPLES):
            self._samples.append(sample)
        self.add_to_board(sample.step, {}, {"sample": sample.prompt + sample.text})

    def event(self, name: str, facts: Mapping[str, Json]) -> None:
        """Something that happened, to events.jsonl, which may differ from that of an unbroken run."""
        assert self._events is not None
        with self._going_on(EVENTS):
            self._events.append({"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "event": name, **facts})

    def _place(self, name: str) -> str:
        """The file or folder of a log, for a message."""
        return str(self._copy.path) if self._copy is not None and name == _COPY else f"{self._folder}/{name}"

    @contextlib.contextmanager
    def _going_on(self, name: str) -> Iterator[None]:
        """Makes an OSError of a log one warning for each log."""
        try:
            yield
        except OSError as error:
            self._warn(name, f"{self._place(name)}: {error.strerror}; the run goes on")

    def _warn(self, name: str, text: str) -> None:
        """A warning for each name."""
        if name not in self._warned:
            self._warned.add(name)
            with contextlib.suppress(OSError):  # the same disk may hold the output
                print(f"warning: {text}", file=sys.stderr)

    def sync(self) -> None:
        """Make every row of metrics.jsonl and samples.jsonl survive a power cut; SaveError where that fails."""
        assert self._metrics is not None and self._board is not None and self._samples is not None
        self._sync_failed = True
        logs = ((METRICS, self._metrics.sync), (SAMPLES, self._samples.sync), (BOARD, self._board.flush))
        for name, write in logs:
            try:
                write()
            except OSError as error:
                raise write_error(self._place(name), error) from error
        self._sync_failed = False

    def close_rows(self) -> None:
        """Close the files that `open` opens again at another step."""
        for log in (self._metrics, self._board, self._copy, self._samples):
            if log is not None:
                log.close()

    def close(self) -> None:
        """Close all; SaveError where one of them cannot be written any more, a warning if `sync` has failed before."""
        logs = {
            METRICS: self._metrics,
            BOARD: self._board,
            EVENTS: self._events,
            SAMPLES: self._samples,
            _COPY: self._copy,
        }
        failed: dict[str, str] = {}
        for name, log in logs.items():
            try:
                if log is not None:
                    log.close()
            except OSError as error:
                failed[name] = f"{self._place(name)}: {write_reason(error)}"
        if failed and not self._sync_failed:
            raise SaveError(f"[save] {'; '.join(failed.values())}")
        for name, text in failed.items():
            self._warn(name, text)


_ROW_BEGIN = b'{"step": '  # of each row of metrics.jsonl


def require_metrics_file(config: Config, folder: RunFolder | None = None) -> None:
    """SaveError if log.metrics_file cannot be written; UserError for a file of something else; leaves nothing behind.

    folder: of the run, which will make it; the file may be in it.
    """
    if not config.log.metrics_file:
        return
    path = lines_file(config)
    if kind_of(config) == "folder" and not path.parent.exists():
        _require_folder(path.parent)
        return
    if folder is not None and path.absolute().parent == folder.path.absolute() and not path.parent.exists():
        return
    is_new = not os.path.lexists(path)
    try:
        if not is_new:
            with open_binary(path, links=False) as file:
                begin = file.read(len(_ROW_BEGIN))
            # Rows of a copy are cut back by their steps, which would empty a file of other objects.
            wanted = b"{" if kind_of(config) != "rows" else _ROW_BEGIN
            if not (begin.startswith(wanted) or wanted.startswith(begin)):
                raise UserError(f"[log] metrics_file: expected a new file or one of metrics rows, got {path}")
        open_to_append(path).close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise _unwritable(path, error.strerror) from error


def _require_folder(path: Path) -> None:
    """SaveError if a folder that is not there yet cannot be made."""
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        code = errno.EACCES if above.is_dir() else errno.ENOTDIR
        raise _unwritable(path, os.strerror(code))


def _unwritable(path: Path, reason: str | None) -> SaveError:
    return SaveError(f"[log] metrics_file: cannot write {path}: {reason}; name another file")
