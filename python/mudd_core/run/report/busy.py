"""Notes in the progress line, each once: other processes use the machine, or the run has become slow."""

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
        self._busy = self._slow = False  # True after the note
        self._shown, self._until, self._best = "", 0.0, 0.0

    def at_start(self) -> str:
        """Return a line about the time since this object was made; empty if no other process competes."""
        text = "" if self._load is None else self._text(self._load.take())
        return f"note: {text}, so that steps may take longer" if text else ""

    def at_step(self, record: StepRecord, *, logged: bool, live: bool) -> str:
        """Return a field of the progress line; empty without one. A note comes once, or for some seconds if live."""
        if live and time.monotonic() < self._until:
            return self._shown
        if not logged or self._load is None:
            return ""
        others = 0.0 if self._busy else record.load.get("others", 0.0)
        text, speed = self._text(others), record.tokens_per_second
        slow = "" if self._slow or speed >= _SLOW * self._best else "below half of the highest speed"
        self._best = max(self._best, speed)
        if not (text or slow):
            return ""
        self._busy, self._slow = self._busy or bool(text), self._slow or bool(slow)
        note = ", ".join(filter(None, [text, slow]))
        self._shown, self._until = f"{'busy' if text else 'slow'}: {note}", time.monotonic() + _SHOWN_SECONDS
        return self._shown

    def _text(self, others: float) -> str:
        return competing_text(others, self._load.cores if self._load else 0, _core.num_threads())
