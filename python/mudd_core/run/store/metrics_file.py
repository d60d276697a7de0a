"""log.metrics_file: a second copy of metrics.jsonl, or the file or folder of the original program of log.style.

A file of a program has one JSON object a write. In a folder, train_results.txt has the objects and results.txt has one
line a validation.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

from mudd_core import _core
from mudd_core.base.paths import local
from mudd_core.base.regular_files import read_bytes
from mudd_core.config import Config
from mudd_core.config.programs import program_module
from mudd_core.run.store.metrics import LineFile, MetricsLog, Row

_OBJECTS, _RESULTS = "train_results.txt", "results.txt"
_RESULT = re.compile(rb"Step: (\d+); ")


class MetricsFile:
    """What log.metrics_file names, cut back to `resumed_step`; nothing where the config names none."""

    def __init__(self, config: Config, resumed_step: int) -> None:
        """OSError where a file cannot be written."""
        kind = kind_of(config)
        self._of_program = kind != "rows"
        self._lines: LineFile | None = None
        self._results: LineFile | None = None
        if not config.log.metrics_file:
            return
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
        """Append one row of metrics.jsonl, where the file is its copy."""
        if self._lines is not None and not self._of_program:
            self._lines.append(row)

    def object(self, values: Mapping[str, float | str]) -> None:
        """Append one object of the program, where the file has these; an empty one is none."""
        if values and self._lines is not None and self._of_program:
            self._lines.append(values)

    def result(self, line: str) -> None:
        """Append one line of results.txt, where there is one; an empty one is none."""
        if line and self._results is not None:
            self._results.line(line.encode())

    def close(self) -> None:
        """Write the rest and close."""
        for file in (self._lines, self._results):
            if file is not None:
                file.close()


Kind = Literal["rows", "objects", "folder"]
"""What log.metrics_file has: our rows, or a file or a folder with the objects of an original program."""


class MetricsProgram(Protocol):
    """An original program, as the second metrics file sees it."""

    def metrics_kind(self, config: Config) -> Kind:
        """Return what log.metrics_file has."""


def kind_of(config: Config) -> Kind:
    """Return what log.metrics_file has by log.style."""
    module = program_module(config.log.style)
    if module is None:
        return "rows"
    program: MetricsProgram = module.PROGRAM
    return program.metrics_kind(config)


def lines_file(config: Config) -> Path:
    """The file of rows or objects; UserError for a URL."""
    path = local(config.log.metrics_file, "[log] metrics_file")
    return path / _OBJECTS if kind_of(config) == "folder" else path


def _cut_back(path: Path, step: int, step_of: Callable[[bytes], float]) -> None:
    """Drop a torn last line and the lines after the step."""
    if os.path.lexists(path):
        lines = read_bytes(path, links=False).split(b"\n")[:-1]
        kept = [line for line in lines if step_of(line) <= step]
        _core.replace_file(str(path), b"".join(line + b"\n" for line in kept))


def _step_of_object(line: bytes) -> float:
    """Return the step of an object; 0 for a line without one, which is kept."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return 0.0
    step = found.get("step") if isinstance(found, dict) else None
    return float(step) if isinstance(step, int | float) else 0.0


def _step_of_result(line: bytes) -> float:
    """Return the step of a line of results.txt; 0 for another line, which is kept."""
    found = _RESULT.match(line)
    return float(found[1]) if found else 0.0
