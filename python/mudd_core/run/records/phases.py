"""The phases of a training loop, and a clock that divides its wall time among them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum

PHASES = "phases"  # key in metrics.jsonl, and in the event of an end
HIDDEN = "hidden"


class Phase(StrEnum):
    """The parts of a step. Each moment of the loop is in one of them.

    messages: only exchanging with other ranks, or waiting for them. evaluation: validations and samples. log: the loop
    itself, its records and logs. callback: the caller's code between two updates.
    """

    DATA = "data"
    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"
    MESSAGES = "messages"
    EVALUATION = "evaluation"
    SAVE = "save"
    LOG = "log"
    CALLBACK = "callback"


class PhaseClock:
    """A clock of the loop. It runs from `start` to `stop`, and ignores all other time.

    hidden: seconds since the last lap with messages in transit while this rank computed; they are not a phase.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        """Store the clock. now: returns seconds."""
        self._now = now
        self._seconds = _no_time()
        self._current: Phase | None = None  # None: stopped
        self._mark = 0.0  # the time up to which all time is counted
        self.hidden = 0.0

    def start(self) -> None:
        """Start, or continue after a stop. The loop is in the phase `log` until it enters another one."""
        self._current, self._mark = Phase.LOG, self._now()

    def stop(self) -> None:
        """Stop; `start` continues."""
        if self._current is not None:
            self.enter(self._current)
        self._current = None

    def enter(self, phase: Phase) -> Phase:
        """Continue in another phase, and return the previous one. A stopped clock ignores this."""
        before = self._current
        if before is None:
            return phase
        now = self._now()
        self._seconds[before] += now - self._mark
        self._current, self._mark = phase, now
        return before

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Be in a phase while the block runs; the surrounding phase does not count this time."""
        before = self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def step_took(self, seconds: Mapping[str, float]) -> None:
        """Move the stages of an update (LoopEngine.step_seconds) from the current phase to their phases."""
        if self._current is None:
            return
        counted = 0.0
        for name, length in seconds.items():
            if name == HIDDEN:
                self.hidden += length
            else:
                self._seconds[name] += length
                counted += length
        self._seconds[self._current] -= counted

    def lap(self) -> dict[str, float]:
        """Return the seconds of all phases since the last lap, and start the next one."""
        if self._current is not None:
            self.enter(self._current)
        found = {phase: round(seconds, 6) for phase, seconds in self._seconds.items()}
        self._seconds = _no_time()
        self.hidden = 0.0
        return found


def _no_time() -> dict[str, float]:
    return dict.fromkeys(map(str, Phase), 0.0)
