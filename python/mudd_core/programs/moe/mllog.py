"""The MLPerf log of a run: lines of `:::MLLOG {...}` on stdout and in a file, as the benchmark's checker expects."""

from __future__ import annotations

import json
import os
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mudd_core import _core
from mudd_core.base.errors import SaveError, UserError, write_reason
from mudd_core.base.regular_files import open_to_append, read_bytes
from mudd_core.config import Config
from mudd_core.programs.moe.mllog_settings import settings_of
from mudd_core.run.records.events import StepRecord, Summary, Validation
from mudd_core.run.store.log_files import plain
from mudd_core.run.store.run_folder import BENCHMARK_LOG, RunFolder

TOKEN = ":::MLLOG "
_POINT, _START, _STOP = "POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"
_OF_EVALUATION = ("train_loss", "block_stop", "eval_start", "eval_accuracy")
_FILE, _RUN = "config_filename", "run"  # the name of a setting, and the run's name in the setting's metadata
_Line = dict[str, Any]


class BenchmarkLog:
    """The events of one run in order, with exactly one run_stop. samples_count is a number of tokens.

    say: prints a line. folder: the run's folder, for the file. The variable COMPLIANCE_FILE names another file; if that
    file contains earlier runs, lines are appended. Raise SaveError if the file cannot be opened, UserError if it is not
    such a log. If the disk is full later, lines wait in memory until `close` writes them.
    """

    def __init__(self, config: Config, folder: RunFolder, say: Callable[[str], None]) -> None:
        self._config, self._say = config, say
        named = os.environ.get("COMPLIANCE_FILE")
        self._path = Path(named) if named else folder.path / BENCHMARK_LOG
        self._own_file = not named  # no other run writes to the file
        self._require_log()
        self._waiting: list[_Line] = []
        self._file: Any = None
        self._unwritten = b""
        self._running = self._in_block = self._reached = False
        self._step, self._loss = 0, 0.0
        self._emit("cache_clear", True)
        self._emit("init_start", None, _START)

    def started(self, documents: tuple[int, int], step: int = 0, ranks: int = 1) -> None:
        """Log that the first update follows.

        documents: the numbers for training and validation. step: the step of the resumed checkpoint.
        """
        data = self._read()
        begin = self._begin_of_run(data, step)
        kept = self._kept(data[begin:], step) if step else []
        self._open(data, begin, kept)
        self._step = step
        self._running = any(line["key"] == "run_start" for line in kept)
        if not self._running:
            for line in self._waiting:
                self._write(line)
            for key, value in settings_of(self._config, documents, ranks).items():
                if key == _FILE:
                    self._emit(key, value, run=self._config.name)
                else:
                    self._emit(key, value)
            self._emit("init_stop", None, _STOP)
            self._emit("run_start", None, _START)
            self._running = True
        keys = [line["key"] for line in kept if line["key"] in ("block_start", "block_stop")]
        self._in_block = keys[-1:] == ["block_start"]
        self._waiting = []
        if step < self._config.train.steps:
            self._begin_block()

    def took_step(self, record: StepRecord) -> None:
        """Log an update."""
        self._begin_block()
        self._step, self._loss = record.step, record.loss

    def evaluating(self, step: int) -> None:
        """Log that a validation follows."""
        self._step = step
        if not self._config.target_counts_at(step):
            return
        if self._in_block:
            if step:
                self._emit("train_loss", self._loss, samples=step)
            self._emit("block_stop", None, _STOP, samples=step)
            self._in_block = False
        self._emit("eval_start", None, _START, samples=step)

    def validated(self, result: Validation) -> None:
        """Log the end of a validation."""
        self._step = result.step
        if not self._config.target_counts_at(result.step):
            return
        self._emit("eval_accuracy", result.val_loss, samples=result.step)
        self._emit("eval_stop", None, _STOP, samples=result.step)
        target = self._config.eval.target_loss
        self._reached = self._reached or (target > 0 and result.val_loss <= target)
        if not self._reached and result.step < self._config.train.steps:
            self._begin_block()

    def ended(self, summary: Summary) -> None:
        """Log the end of the run, with success if a validation has reached eval.target_loss."""
        self._step = summary.step
        self._end()

    def close(self) -> None:
        """Log the end of an unfinished run and write the waiting lines; raise SaveError if that fails."""
        self._end()
        if self._file is not None:
            try:
                self._flush()
            except OSError as error:
                raise SaveError(f"[mllog] {self._path}: {write_reason(error)}") from error
            finally:
                self._file.close()
                self._file = None

    def _begin_block(self) -> None:
        if not self._in_block:
            self._emit("block_start", None, _START, samples=self._step)
            self._in_block = True

    def _end(self) -> None:
        if not self._running:
            return
        if self._in_block:
            self._emit("block_stop", None, _STOP, samples=self._step)
            self._in_block = False
        self._emit(
            "run_stop", None, _STOP, samples=self._step, status="success" if self._reached else "aborted"
        )
        self._running = False

    def _emit(
        self, key: str, value: object, event: str = _POINT, *, samples: int | None = None, **metadata: object
    ) -> None:
        frame = sys._getframe(1)
        place: _Line = {"file": Path(frame.f_code.co_filename).name, "lineno": frame.f_lineno}
        if samples is not None:
            train = self._config.train
            place["samples_count"] = samples * train.batch_size * train.seq_len
        line = {
            "namespace": "",
            "time_ms": int(time.time() * 1000),
            "event_type": event,
            "key": key,
            "value": plain(value),
            "metadata": place | metadata,
        }
        self._say(TOKEN + json.dumps(line))
        if self._file is None:
            self._waiting.append(line)
        else:
            self._write(line)

    def _write(self, line: _Line) -> None:
        self._unwritten += (TOKEN + json.dumps(line) + "\n").encode()
        try:
            self._flush()
        except OSError:  # the next write also writes these lines
            return

    def _flush(self) -> None:
        while self._unwritten:
            self._unwritten = self._unwritten[self._file.write(self._unwritten) :]

    def _require_log(self) -> None:
        """Raise SaveError if the file cannot be written, UserError if it is not such a log. Do not create the file."""
        new = not os.path.lexists(self._path)
        try:
            foreign = not all(_is_ours(line) for line in self._read().split(b"\n"))
            if not foreign:
                open_to_append(self._path, buffering=0).close()
            if new:
                self._path.unlink()
        except OSError as error:
            raise SaveError(
                f"[mllog] {self._path}: {error.strerror}; COMPLIANCE_FILE names another file"
            ) from error
        if foreign:
            raise UserError(
                f"[mllog] {self._path}: expected a new file or a log of {TOKEN.strip()} lines, got other text; "
                "COMPLIANCE_FILE names another file"
            )

    def _read(self) -> bytes:
        return read_bytes(self._path) if os.path.lexists(self._path) else b""

    def _open(self, data: bytes, begin: int, kept: list[_Line]) -> None:
        """Open the file, whose content is `data`; replace everything after offset `begin` by the kept lines."""
        try:
            if begin < len(data):
                text = "".join(TOKEN + json.dumps(line) + "\n" for line in kept)
                _core.replace_file(str(self._path), data[:begin] + text.encode())
            elif data and not data.endswith(b"\n"):
                self._unwritten = b"\n"  # ends an incomplete line
            self._file = open_to_append(self._path, buffering=0)
            weakref.finalize(self, self._file.close)  # closes the file if the Trainer is freed
        except OSError as error:
            raise SaveError(f"[mllog] {self._path}: {write_reason(error)}") from error

    def _begin_of_run(self, data: bytes, step: int) -> int:
        """Return the offset of this run's lines in the file.

        For a new run, or after another run, it is the end of the file.
        """
        if self._own_file:
            return 0
        begin, at = len(data), 0
        settings: dict[str, object] = {}
        for raw in data.splitlines(keepends=True):
            line = _line_of(raw)
            if line and line["key"] == "cache_clear":
                begin, settings = at, {}
            if line:
                settings[line["key"]] = line.get("value")
            if line and line["key"] == _FILE:
                settings[_RUN] = line["metadata"].get(_RUN, line.get("value"))
            at += len(raw)
        ours = {_RUN: self._config.name, "seed": self._config.train.seed}
        same = all(settings.get(name) == value for name, value in ours.items())
        return begin if step and same else len(data)

    def _kept(self, data: bytes, step: int) -> list[_Line]:
        """Return the run's earlier lines, up to the step that it resumes from."""
        most = step * self._config.train.batch_size * self._config.train.seq_len
        found = [line for line in map(_line_of, data.splitlines()) if line and line["key"] != "run_stop"]
        lines = [line for line in found if line["metadata"].get("samples_count", 0) <= most]
        while lines and lines[-1]["key"] in _OF_EVALUATION:  # the evaluation was interrupted and is repeated
            lines.pop()
        while lines and lines[-1]["key"] == "block_start" and lines[-1]["metadata"]["samples_count"] == most:
            lines.pop()  # this line is written again after the next update
        return lines


def _is_ours(raw: bytes) -> bool:
    """Return whether a line, complete or truncated, may belong to the log."""
    token = TOKEN.encode()
    return raw.startswith(token) or token.startswith(raw)


def _line_of(raw: bytes) -> _Line | None:
    """Return the event in a line; None for a truncated line."""
    try:
        line = json.loads(raw.decode("utf-8").removeprefix(TOKEN))
        count = line["metadata"].get("samples_count", 0)
        return line if isinstance(line["key"], str) and isinstance(count, int) else None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None
