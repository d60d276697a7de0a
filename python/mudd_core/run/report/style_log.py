"""Listeners that log a run in the format of an original program, and in the log of its benchmark."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from mudd_core.base.errors import SaveError
from mudd_core.base.types import Json
from mudd_core.checkpoint import Checkpoint
from mudd_core.config import Difference
from mudd_core.run.records.events import BatchSums, SavedStep, StepRecord, Summary, Validation, numbers_of
from mudd_core.run.records.journal import Listener
from mudd_core.run.report.screen import Screen
from mudd_core.run.report.style import ComplianceLog, Style
from mudd_core.run.store.logs import Logs


class StyleLog(Listener):
    """A listener that prints a style's lines, and writes its tags and objects if there is a work directory."""

    def __init__(self, style: Style, screen: Screen, logs: Logs | None) -> None:
        self._style, self._screen, self._logs = style, screen, logs
        self._started: int | None = None  # the step of an asynchronous save
        if not style.ours:
            screen.leave_lines_to_style()

    def _say(self, lines: list[str]) -> None:
        for line in lines:
            self._screen.said(line)

    def started(self, job: Mapping[str, Json]) -> None:
        if self._logs is not None:
            self._logs.board.tags(0, {}, self._style.texts())

    def resumed(self, checkpoint: Checkpoint, changed: Sequence[Difference], job: Mapping[str, Json]) -> None:
        self.restored(checkpoint)

    def restored(self, checkpoint: SavedStep) -> None:
        """Print the style's lines about the checkpoint that the run continues from."""
        self._say(self._style.restored(checkpoint))

    def began(self, step: int, documents: tuple[int, int]) -> None:
        self._say(self._style.started())

    def took_step(self, record: StepRecord, *, logged: bool, seconds_left: float) -> None:
        self._say(self._style.step(record))
        # Leave out the tags that the TensorBoard listener writes for a logged update.
        written = dict(numbers_of("train", record.row())) if logged else {}
        tags = {name: value for name, value in self._style.scalars(record).items() if name not in written}
        found = self._style.object(record)
        if self._logs is not None:
            self._logs.board.tags(record.step, tags)
            self._logs.copy.object(found)

    def validating(self, step: int, batches: int) -> None:
        self._say(self._style.validating())

    def batch_validated(self, sums: BatchSums) -> None:
        self._say(self._style.batch_validated(sums))

    def validated(self, result: Validation) -> None:
        self._say(self._style.validated(result))
        tags, line = self._style.eval_scalars(result), self._style.result(result)
        if self._logs is not None:
            self._logs.board.tags(result.step, tags)
            self._logs.copy.result(line)

    def save_started(self, step: int) -> None:
        self._say(self._style.saved(step))  # as the original programs do, and always between the same lines
        self._started = step

    def saved(self, step: int, seconds: float) -> None:
        if step != self._started:
            self._say(self._style.saved(step))
        self._started = None


class Compliance(Listener):
    """A listener that writes the events of a run to the log of its benchmark, for the first call of fit()."""

    def __init__(self, log: ComplianceLog, ranks: int) -> None:
        self._log: ComplianceLog | None = log
        self._ranks = ranks

    def began(self, step: int, documents: tuple[int, int]) -> None:
        if self._log is not None:
            self._log.started(documents, step, self._ranks)

    def took_step(self, record: StepRecord, *, logged: bool, seconds_left: float) -> None:
        if self._log is not None:
            self._log.took_step(record)

    def validating(self, step: int, batches: int) -> None:
        if self._log is not None:
            self._log.evaluating(step)

    def validated(self, result: Validation) -> None:
        if self._log is not None:
            self._log.validated(result)

    def ended(self, summary: Summary, last: StepRecord | None, tail: Mapping[str, float]) -> None:
        if self._log is not None:
            self._log.ended(summary)
            self.closed()

    def broke_off(self) -> None:
        with contextlib.suppress(SaveError):  # the error that ended the run is being raised already
            self.closed()

    def closed(self) -> None:
        """Close the log. Raise SaveError if it cannot be written."""
        log, self._log = self._log, None
        if log is not None:
            log.close()
