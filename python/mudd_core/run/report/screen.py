"""Standard output and standard error of a run: lines, warnings, and the progress line.

A terminal shows one progress line, which is rewritten in place. Elsewhere each logged step is printed on a new line,
and others if a line is due.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mudd_core.base.show.printable import beginning_of
from mudd_core.base.show.waiting import Waiting
from mudd_core.base.types import Json
from mudd_core.checkpoint import Checkpoint
from mudd_core.config import Difference, TrainConfig
from mudd_core.run.records.events import BatchSums, Rewind, Sample, StepRecord, Summary, Validation
from mudd_core.run.records.journal import Listener
from mudd_core.run.report.busy import BusyNotes
from mudd_core.run.report.progress import Progress, ValidationLine, step_fields


class Screen(Listener):
    """A listener that prints. Lines before `opened` are delayed, so that an error at the start is printed alone."""

    def __init__(
        self, progress: Progress, train: TrainConfig, *, waits: bool, busy: BusyNotes | None = None
    ) -> None:
        self._warned: set[str] = set()
        self._progress, self._steps = progress, train.steps
        self._beside: Progress | None = (
            None  # the progress line of a run that prints in a program's log style
        )
        self._ours = True  # False if a program's log style prints the steps
        self._waiting: list[Callable[[], None]] | None = [] if waits else None
        self._busy = None if progress.quiet else busy
        self._validation: ValidationLine | None = None
        self._first: Waiting | None = None  # the line while the first update takes long

    def leave_lines_to_style(self) -> None:
        """Print no more steps, since a log style does; a terminal shows the progress line on standard error."""
        self._ours, self._beside = False, self._progress.on_errors()

    def said(self, text: str) -> None:
        self._wipe()
        self._print(partial(self._progress.say, text))

    def warned(self, text: str, step: int | None = None) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._wipe()
            self._print(partial(_warn, text))

    def found(self, checkpoint: Checkpoint) -> None:
        for passed in checkpoint.passed_over:
            self.said(f"warning: {passed}")

    def resumed(self, checkpoint: Checkpoint, changed: Sequence[Difference], job: Mapping[str, Json]) -> None:
        """Print the step that the run continues from, unless the start lines will do so."""
        if self._waiting is None:
            fields = ", ".join(f"{change.path}={change.asked}" for change in changed)
            more = f" with {fields}" if fields else ""
            self.said(f"resumed from step {checkpoint.step} ({checkpoint.path}){more}")

    def opened(self, lines: Callable[[], tuple[Sequence[str], Sequence[str]]]) -> None:
        """Print the start lines, unless a log style has its own, and then the delayed lines."""
        if self._waiting is None:
            return
        shown, details = ((), ()) if self._progress.quiet else lines()
        waiting, self._waiting = self._waiting, None
        for line in shown:
            self._progress.say(line)
        for line in details:
            self._progress.detail(line)
        for print_line in waiting:
            print_line()

    def shortened(self, train: TrainConfig) -> None:
        self._steps = train.steps

    def began(self, step: int, documents: tuple[int, int]) -> None:
        if self._ours and self._busy is not None and (note := self._busy.at_start()):
            self.said(note)
        if not self._progress.quiet and step < self._steps:
            self._first = Waiting(f"step {step + 1}: the first one plans the graph and touches its memory")

    def updated(self, record: StepRecord) -> None:
        self._end_first()

    def took_step(self, record: StepRecord, *, logged: bool, seconds_left: float) -> None:
        note = ""
        if self._busy is not None:
            note = self._busy.at_step(record, logged=logged, live=self._progress.live)
        fields = step_fields(record.row(), self._steps, seconds_left, note)
        if self._ours:
            self._progress.step(fields, logged=logged)
        elif self._beside is not None:
            self._beside.step(fields, logged=False)

    def source_lost(self, step: int, place: str, reason: str, retry: int, seconds: float) -> None:
        self.said(f"warning: step {step}: {place}: {reason}; retry {retry} in {seconds:.0f} s")

    def skipped(self, step: int, reason: str, where: str) -> None:
        bad = f"; the first non-finite value is in {where}" if where else ""
        self.said(f"step {step}: {reason}; the update is skipped{bad}")

    def rewound(self, rewind: Rewind, count: int, allowed: int) -> None:
        self.said(
            f"step {rewind.from_step + 1}: back to the checkpoint of step {rewind.to_step} (rewind {count} of "
            f"{allowed}); batches {rewind.first_batch} to {rewind.last_batch} are left out"
        )

    def validating(self, step: int, batches: int) -> None:
        self._end_first()
        progress = self._progress if self._ours else self._beside
        self._validation = ValidationLine(batches, progress) if progress is not None else None

    def batch_validated(self, sums: BatchSums) -> None:
        if self._validation is not None:
            self._validation.batch(sums)

    def validated(self, result: Validation) -> None:
        if self._ours:
            self.said(
                f"step {result.step}: validation loss {result.val_loss:.4f}, "
                f"{result.text} ({result.seconds:.1f} s)"
            )

    def sampled(self, sample: Sample) -> None:
        if self._ours:
            self.said(f"step {sample.step}: sample {beginning_of(sample.prompt + sample.text)}")

    def not_sampled(self, step: int, reason: str) -> None:
        self.said(f"note: step {step}: no sample: {reason}")

    def save_failed(self, error: Exception) -> None:
        self.said(f"warning: {error}")

    def finished(self, summary: Summary) -> None:
        self._end_first()
        self._wipe()
        self._progress.close()

    def broke_off(self) -> None:
        self._end_first()
        self._wipe()

    def closed(self) -> None:
        self._end_first()

    def _end_first(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            first.close()

    def _wipe(self) -> None:
        """Remove the progress line on standard error; the next step redraws it."""
        if self._beside is not None:
            self._beside.wipe()

    def _print(self, print_line: Callable[[], None]) -> None:
        if self._waiting is None:
            print_line()
        else:
            self._waiting.append(print_line)


def _warn(text: str) -> None:
    with contextlib.suppress(OSError):  # standard error may be a file on a full disk
        print(f"warning: {text}", file=sys.stderr)
