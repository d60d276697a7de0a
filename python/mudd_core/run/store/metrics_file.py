"""log.metrics_file: a second copy of metrics.jsonl, or the file or folder of the original program of log.style.

A program's file has one JSON object for each write. A folder has train_results.txt with the objects, and results.txt
with one line for each validation.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

from mudd_core import _core
from mudd_core.base.errors import SaveError, UserError
from mudd_core.base.paths import local
from mudd_core.base.regular_files import open_binary, open_to_append, read_bytes
from mudd_core.config import Config
from mudd_core.config.programs import Programs
from mudd_core.run.records.events import StepRecord, Validation
from mudd_core.run.store.log_files import Lenient, LineFile, MetricsLog
from mudd_core.run.store.metrics import Row
from mudd_core.run.store.run_folder import RunFolder

_OBJECTS, _RESULTS = "train_results.txt", "results.txt"
_RESULT = re.compile(rb"Step: (\d+); ")


class MetricsFile:
    """The file or folder of log.metrics_file, without lines after `resumed_step`."""

    def __init__(self, config: Config, resumed_step: int) -> None:
        """Open the file or folder, and remove later lines; raise OSError if it cannot be written."""
        kind = kind_of(config)
        self._of_program = kind != "rows"
        self._lines: LineFile | None = None
        self._results: LineFile | None = None
        self.path = lines_file(config)
        if not self._of_program:
            self._lines = MetricsLog(self.path, resumed_step=resumed_step)
            return
        if kind == "folder":
            self.path.parent.mkdir(parents=True, exist_ok=True)
            results = self.path.parent / _RESULTS
            _cut_back(results, resumed_step, _step_of_result)
            self._results = LineFile(results)
        _cut_back(self.path, resumed_step, _step_of_object)
        self._lines = LineFile(self.path)

    def row(self, row: Row) -> None:
        """Append an entry of metrics.jsonl, if the file is its copy."""
        if self._lines is not None and not self._of_program:
            self._lines.append(row)

    def object(self, values: Mapping[str, float | str]) -> None:
        """Append an object of the program, if the file has objects; ignore an empty one."""
        if values and self._lines is not None and self._of_program:
            self._lines.append(values)

    def result(self, line: str) -> None:
        """Append a line to results.txt, if it exists; ignore an empty one."""
        if line and self._results is not None:
            self._results.line(line.encode())

    def close(self) -> None:
        """Write the waiting lines and close the files."""
        for file in (self._lines, self._results):
            if file is not None:
                file.close()


COPY = "log.metrics_file"


class Copy(Lenient):
    """A listener that writes log.metrics_file. log: None for a run without it."""

    log: MetricsFile | None = None

    def open(self, step: int, config: Config) -> None:
        """Open the file and remove lines after the step; raise OSError if it cannot be written."""
        self.log = MetricsFile(config, step) if config.log.metrics_file else None

    def place(self, name: str) -> str:
        """Return the file, for a message."""
        return super().place(name) if self.log is None else str(self.log.path)

    def took_step(self, record: StepRecord, *, logged: bool, seconds_left: float) -> None:
        if logged:
            self._row({**record.row(), **record.statistics})

    def validated(self, result: Validation) -> None:
        self._row(result.row())

    def _row(self, row: Row) -> None:
        if self.log is not None:
            with self._going_on(COPY):
                self.log.row(row)

    def object(self, values: Mapping[str, float | str]) -> None:
        """Write one object of a program, if the file has these."""
        if self.log is not None:
            with self._going_on(COPY):
                self.log.object(values)

    def result(self, line: str) -> None:
        """Write one line of a validation, if there is a results.txt."""
        if self.log is not None:
            with self._going_on(COPY):
                self.log.result(line)


Kind = Literal["rows", "objects", "folder"]
"""What log.metrics_file has: our rows, or a file or a folder with the objects of an original program."""


class MetricsProgram(Protocol):
    """The part of an original program that the second metrics file uses."""

    def metrics_kind(self, config: Config) -> Kind:
        """Return the kind of log.metrics_file."""


def kind_of(config: Config) -> Kind:
    """Return the kind of log.metrics_file for log.style."""
    program = Programs[MetricsProgram]().named(config.log.style)
    return "rows" if program is None else program.metrics_kind(config)


def lines_file(config: Config) -> Path:
    """Return the file of entries or objects; raise UserError for a URL."""
    path = local(config.log.metrics_file, "[log] metrics_file")
    return path / _OBJECTS if kind_of(config) == "folder" else path


def _cut_back(path: Path, step: int, step_of: Callable[[bytes], float]) -> None:
    """Remove an incomplete last line, and the lines after the step."""
    if os.path.lexists(path):
        lines = read_bytes(path, links=False).split(b"\n")[:-1]
        kept = [line for line in lines if step_of(line) <= step]
        _core.replace_file(str(path), b"".join(line + b"\n" for line in kept))


def _step_of_object(line: bytes) -> float:
    """Return the step in a JSON line. A line without a step has step 0, so that it is kept."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return 0.0
    step = found.get("step") if isinstance(found, dict) else None
    return float(step) if isinstance(step, int | float) else 0.0


def _step_of_result(line: bytes) -> float:
    """Return the step in a line of results.txt. A line without a step has step 0, so that it is kept."""
    found = _RESULT.match(line)
    return float(found[1]) if found else 0.0


_ROW_BEGIN = b'{"step": '  # the start of each entry of metrics.jsonl


def require_metrics_file(config: Config, folder: RunFolder | None = None) -> None:
    """Raise SaveError if log.metrics_file is not writable, UserError for a file with other content; create nothing.

    folder: the folder of the run, which the run will create; the file may be in it.
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
            # A copy is truncated by the steps of its entries. A file of other objects would become empty.
            wanted = b"{" if kind_of(config) != "rows" else _ROW_BEGIN
            if not (begin.startswith(wanted) or wanted.startswith(begin)):
                raise UserError(f"[log] metrics_file: expected a new file or a file of metrics, got {path}")
        open_to_append(path).close()
        if is_new:
            path.unlink()
    except OSError as error:
        raise _unwritable(path, error.strerror) from error


def _require_folder(path: Path) -> None:
    """Raise SaveError if a missing folder cannot be created."""
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        code = errno.EACCES if above.is_dir() else errno.ENOTDIR
        raise _unwritable(path, os.strerror(code))


def _unwritable(path: Path, reason: str | None) -> SaveError:
    return SaveError(f"[log] metrics_file: cannot write {path}: {reason}; name another file")
