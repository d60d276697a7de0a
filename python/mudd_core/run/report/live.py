"""Live views of fit(): the curve in a notebook, elsewhere a progress line on standard error."""

from __future__ import annotations

import importlib
import sys
import time
from dataclasses import dataclass
from typing import Protocol

from mudd_core.base.show.printable import escaped
from mudd_core.base.surroundings import in_notebook
from mudd_core.run.records.events import StepRecord
from mudd_core.run.report.curve import Curve, curve
from mudd_core.run.report.history import History
from mudd_core.run.report.progress import Progress, fit, step_fields

SECONDS_BETWEEN = 1.0  # seconds between two pictures in a notebook


class Live(Protocol):
    """A view of one call of fit()."""

    def step(self, record: StepRecord, seconds_left: float) -> None:
        """Show an update and the time that the run still needs."""

    def close(self) -> None:
        """End the view; the last update stays visible."""


class Nothing:
    """A view that shows nothing."""

    def step(self, record: StepRecord, seconds_left: float) -> None:
        """Ignore an update."""

    def close(self) -> None:
        """Do nothing."""


class ErrorLine:
    """A progress line on standard error: rewritten on a terminal, elsewhere written once at the end."""

    def __init__(self, steps: int) -> None:
        self._steps, self._progress = steps, Progress(sys.stderr)
        self._fields: list[str] = []

    def step(self, record: StepRecord, seconds_left: float) -> None:
        """Show an update, at most ten times a second."""
        self._fields = step_fields(record.row(), self._steps, seconds_left)
        self._progress.step(self._fields, logged=False)

    def close(self) -> None:
        """Leave the line of the last update."""
        if self._fields:
            self._progress.step(self._fields, logged=True)
        self._progress.close()


@dataclass(frozen=True)
class _View:
    """A line of text above a curve, for a notebook."""

    line: str
    curve: Curve

    def _repr_html_(self) -> str:
        return f"<pre>{escaped(self.line)}</pre>{self.curve._repr_html_()}"

    def __repr__(self) -> str:
        return self.line


class _Handle(Protocol):
    """The return type of IPython.display.display(..., display_id=True)."""

    def update(self, view: _View) -> None:
        """Replace the shown object."""


class NotebookView:
    """A line and the curve in the output of a cell, redrawn in place. It needs no widgets."""

    def __init__(self, name: str, steps: int, history: History) -> None:
        self._name, self._steps, self._history = name, steps, history
        self._handle: _Handle | None = None
        self._line, self._drawn = "", 0.0

    def step(self, record: StepRecord, seconds_left: float) -> None:
        """Draw the first update, then at most one a second."""
        self._line = fit(step_fields(record.row(), self._steps, seconds_left))
        if self._handle is None or time.monotonic() - self._drawn >= SECONDS_BETWEEN:
            self._draw()

    def close(self) -> None:
        """Draw the last update."""
        if self._handle is not None:
            self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        view = _View(self._line, curve(self._name, "loss", self._history.updates, self._history.validations))
        if self._handle is None:
            self._handle = importlib.import_module("IPython.display").display(view, display_id=True)
        else:
            self._handle.update(view)


def live(name: str, steps: int, history: History) -> Live:
    """Return the view that suits this process: notebook or standard error. name, steps: of the run."""
    return NotebookView(name, steps, history) if in_notebook() else ErrorLine(steps)
