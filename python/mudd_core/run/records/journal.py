"""The journal of a run. The loop reports each event once, and the journal forwards it to its listeners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec

from mudd_core.base.types import Json
from mudd_core.checkpoint import Checkpoint
from mudd_core.config import Difference, TrainConfig
from mudd_core.run.records.events import (
    BatchSums,
    Rewind,
    Sample,
    SavedStep,
    StepRecord,
    Summary,
    Validation,
)

Event = ParamSpec("Event")


class Listener:
    """The base class of listeners, which ignores all events. A subclass has a method for each event that it handles."""

    def said(self, text: str) -> None:
        """Handle a line for the user."""

    def warned(self, text: str, step: int | None = None) -> None:
        """Handle a warning. step: the last update, if the warning is about training."""

    def started(self, job: Mapping[str, Json]) -> None:
        """Handle the start of a new run. job: number of ranks and mesh; empty for one process."""

    def found(self, checkpoint: Checkpoint) -> None:
        """Handle a checkpoint to continue from; newer ones may have been skipped."""

    def resumed(self, checkpoint: Checkpoint, changed: Sequence[Difference], job: Mapping[str, Json]) -> None:
        """Handle a resume from a checkpoint, with changed config fields."""

    def restored(self, checkpoint: SavedStep) -> None:
        """Handle a new run that continues at the step of other weights."""

    def began(self, step: int, documents: tuple[int, int]) -> None:
        """Handle the start of the loop after `step`.

        documents: numbers for training and validation; zeros if unknown.
        """

    def opened(self, lines: Callable[[], tuple[Sequence[str], Sequence[str]]]) -> None:
        """Handle a successful start.

        lines: returns the lines for the user, and the lines only for the copy of the output.
        """

    def shortened(self, train: TrainConfig) -> None:
        """Handle the shortening of the run to its data."""

    def updated(self, record: StepRecord) -> None:
        """Handle an update that the loop or Trainer.step has made."""

    def took_step(self, record: StepRecord, *, logged: bool, seconds_left: float) -> None:
        """Handle an update of the loop. logged: the update is written to the logs."""

    def source_lost(self, step: int, place: str, reason: str, retry: int, seconds: float) -> None:
        """Handle data that could not be read; the run waits and retries."""

    def skipped(self, step: int, reason: str, where: str) -> None:
        """Handle a skipped update. where: the place of the first non-finite value; '' if it was not searched."""

    def rewound(self, rewind: Rewind, count: int, allowed: int) -> None:
        """Handle a return to a checkpoint."""

    def validating(self, step: int, batches: int) -> None:
        """Handle the start of a validation. batches: the largest count of its batches, 0 if unknown."""

    def batch_validated(self, sums: BatchSums) -> None:
        """Handle one batch of a validation."""

    def validated(self, result: Validation) -> None:
        """Handle the end of a validation."""

    def sampled(self, sample: Sample) -> None:
        """Handle a sample of sample.every."""

    def not_sampled(self, step: int, reason: str) -> None:
        """Handle a failed sample; the run continues."""

    def save_started(self, step: int) -> None:
        """Handle the start of an asynchronous save; `saved` or `save_failed` follows."""

    def saved(self, step: int, seconds: float) -> None:
        """Handle a committed checkpoint. seconds: the time for which the run waited."""

    def save_failed(self, error: Exception) -> None:
        """Handle a failed save; the run continues, and retries at the next save."""

    def ended(self, summary: Summary, last: StepRecord | None, tail: Mapping[str, float]) -> None:
        """Handle the end or the stop of fit(). last: the last update, if it has no log entry yet.

        tail: the seconds by phase since the last entry.
        """

    def finished(self, summary: Summary) -> None:
        """Handle the summary of fit(), after it was written."""

    def broke_off(self) -> None:
        """Handle an error that ended fit()."""

    def closed(self) -> None:
        """Handle the close of the run."""


_EVENTS = [name for name in vars(Listener) if not name.startswith("_")]


class Journal(Listener):
    """A listener that forwards each event, in order, to all listeners that have a method for it.

    With several ranks, only the first one has all listeners; the others have only the history.
    """

    def __init__(self, *listeners: Listener) -> None:
        self._listeners: list[Listener] = []
        self.add(*listeners)

    def add(self, *listeners: Listener, first: bool = False) -> None:
        """Add listeners. first: before the other listeners."""
        place = 0 if first else len(self._listeners)
        self._listeners[place:place] = listeners
        for name in _EVENTS:
            plain = getattr(Listener, name)
            heard = [getattr(one, name) for one in self._listeners if getattr(type(one), name) is not plain]
            setattr(self, name, _all_of(heard))


def _all_of(hearing: Sequence[Callable[Event, None]]) -> Callable[Event, None]:
    """Return a function that calls all of these functions in order."""

    def pass_on(*event: Event.args, **more: Event.kwargs) -> None:
        for hear in hearing:
            hear(*event, **more)

    return pass_on
