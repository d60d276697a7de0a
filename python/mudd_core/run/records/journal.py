"""The journal of a run: the loop reports each event once, and the journal passes it on to its listeners."""

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
    """The events of a run, in which nothing happens; a subclass has a method for each event that it cares about."""

    def said(self, text: str) -> None:
        """A line for the user."""

    def warned(self, text: str, step: int | None = None) -> None:
        """A warning, after this update if it is about the training."""

    def started(self, job: Mapping[str, Json]) -> None:
        """A new run. job: its number of ranks and its mesh; empty for one process."""

    def found(self, checkpoint: Checkpoint) -> None:
        """A checkpoint to continue from was found; newer ones may have been passed over."""

    def resumed(self, checkpoint: Checkpoint, changed: Sequence[Difference], job: Mapping[str, Json]) -> None:
        """A run continues from a checkpoint, with changed fields of its config."""

    def restored(self, checkpoint: SavedStep) -> None:
        """A new run continues at the step of other weights."""

    def began(self, step: int, documents: tuple[int, int]) -> None:
        """The next update is the one after `step`. documents: of training and validation, zeros if unknown."""

    def opened(self, lines: Callable[[], tuple[Sequence[str], Sequence[str]]]) -> None:
        """The start has succeeded. lines: for the user, and for the copy of the output alone."""

    def shortened(self, train: TrainConfig) -> None:
        """The run gets the length of its data."""

    def updated(self, record: StepRecord) -> None:
        """An update was made, by the loop or by Trainer.step."""

    def took_step(self, record: StepRecord, *, logged: bool, seconds_left: float) -> None:
        """The loop made an update. logged: it gets a row."""

    def source_lost(self, step: int, place: str, reason: str, retry: int, seconds: float) -> None:
        """The data of a step could not be read; the run waits and tries again."""

    def skipped(self, step: int, reason: str, where: str) -> None:
        """An update does not count; where: the first number that is not finite, '' if not searched."""

    def rewound(self, rewind: Rewind, count: int, allowed: int) -> None:
        """A run went back to a checkpoint."""

    def validating(self, step: int) -> None:
        """A validation that is due begins."""

    def batch_validated(self, sums: BatchSums) -> None:
        """One batch of a validation that is due was measured."""

    def validated(self, result: Validation) -> None:
        """A validation that was due has ended."""

    def sampled(self, sample: Sample) -> None:
        """A text of sample.every was written."""

    def not_sampled(self, step: int, reason: str) -> None:
        """A text that was due failed; the run continues."""

    def saved(self, step: int, seconds: float) -> None:
        """A checkpoint was committed."""

    def save_failed(self, error: Exception) -> None:
        """A save failed; the run continues, and tries again when the next save is due."""

    def ended(self, summary: Summary, last: StepRecord | None) -> None:
        """A call of fit() reached its end or was stopped. last: the last update, if it still needs its row."""

    def finished(self, summary: Summary) -> None:
        """The summary of such a call is on disk."""

    def broke_off(self) -> None:
        """An error ended a call of fit()."""

    def closed(self) -> None:
        """The run is closed."""


_EVENTS = [name for name in vars(Listener) if not name.startswith("_")]


class Journal(Listener):
    """Passes each event on to the listeners that have a method for it, in their order.

    Of several ranks the first one has listeners; the others have the history alone.
    """

    def __init__(self, *listeners: Listener) -> None:
        self._listeners: list[Listener] = []
        self.add(*listeners)

    def add(self, *listeners: Listener, first: bool = False) -> None:
        """Add listeners, before the others if `first`."""
        place = 0 if first else len(self._listeners)
        self._listeners[place:place] = listeners
        for name in _EVENTS:
            plain = getattr(Listener, name)
            heard = [getattr(one, name) for one in self._listeners if getattr(type(one), name) is not plain]
            setattr(self, name, _all_of(heard))


def _all_of(hearing: Sequence[Callable[Event, None]]) -> Callable[Event, None]:
    """Return a function that calls all of these in their order."""

    def pass_on(*event: Event.args, **more: Event.kwargs) -> None:
        for hear in hearing:
            hear(*event, **more)

    return pass_on
