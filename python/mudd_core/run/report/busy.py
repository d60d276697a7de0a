"""Notes about a machine that other processes use: at the start of a run, and once in the progress line."""

from __future__ import annotations

import time

from mudd_core import _core
from mudd_core.run.ranks.other_load import OtherLoad, competing_text
from mudd_core.run.records.events import StepRecord

_SHOWN_SECONDS = 5.0  # on a terminal, whose line is redrawn
_SLOW = 0.5  # of the highest speed so far


class BusyNotes:
    """The notes of one run. alone: False for several ranks, which are other processes to each other."""

    def __init__(self, *, alone: bool) -> None:
        self._load = OtherLoad() if alone else None
        self._said, self._until, self._best = "", 0.0, 0.0

    def at_start(self) -> str:
        """Return a line about the time since this object was made; empty if no other process competes."""
        text = self._text()
        return f"note: {text}, so that steps may take longer" if text else ""

    def at_step(self, record: StepRecord, *, logged: bool, live: bool) -> str:
        """Return a field of the progress line, once for a run, or for some seconds if it is live; else empty."""
        if self._said:
            return self._said if live and time.monotonic() < self._until else ""
        if not logged or self._load is None:
            return ""
        text, speed = self._text(), record.tokens_per_second
        slow = speed < _SLOW * self._best
        self._best = max(self._best, speed)
        if not (text or slow):
            return ""
        parts = [text, "below half of the highest speed" if slow else ""]
        self._said, self._until = f"busy: {', '.join(filter(None, parts))}", time.monotonic() + _SHOWN_SECONDS
        return self._said

    def _text(self) -> str:
        if self._load is None:
            return ""
        return competing_text(self._load.take(), self._load.cores, _core.num_threads())
