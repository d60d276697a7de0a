"""Progress of work on data: one rewritten line on a terminal, a printed line every 5 s elsewhere."""

from __future__ import annotations

import time
from typing import TextIO

from mudd_core.base.errors import StopRequestedError
from mudd_core.base.show.waiting import Pace
from mudd_core.base.surroundings import notes_stream

UNKNOWN = -1  # a total
_WIPE = "\r\x1b[K"  # terminal codes: go to the start of the line and clear it


class ConsoleProgress:
    """A progress display, called with (phase, done, total). `stream`: stderr, or a notebook's output.

    On a terminal it rewrites one line, and removes it at the end of each phase. Elsewhere it prints `what`, or the
    first phase if `what` is empty, and then the phase every 5 s. A call with a total of 0 prints a note, which stays in
    both cases. A total of UNKNOWN shows only the number of records that are done.
    """

    def __init__(self, stream: TextIO | None = None, what: str = "") -> None:
        self._stream = stream if stream is not None else notes_stream()
        self._what = what
        self._phase = ""
        self._open = False
        self._last = 0.0
        self._pace = Pace()

    def __call__(self, phase: str, done: int, total: int) -> None:
        if not total:
            self._line(phase)
        elif self._stream.isatty():
            self._draw(phase, done, total)
        elif not self._phase:
            self._line(self._what or phase)
        elif self._pace.is_due():
            self._line(_place(phase, done, total))
        self._phase = phase

    def _draw(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if 0 < total <= done:
            self._wipe()
        elif phase != self._phase or now - self._last >= 0.1:
            self._last, self._open = now, True
            self._write(f"{_WIPE}data: {_place(phase, done, total)}")

    def _wipe(self) -> None:
        if self._open:
            self._open = False
            self._write(_WIPE)

    def _line(self, text: str) -> None:
        self._wipe()
        self._pace.wrote()
        self._write(f"data: {text}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def close(self, text: str = "") -> None:
        """Remove the rewritten line, and print `text` as the last line if it is not empty."""
        self._wipe()
        if text:
            self._line(text)
        self._phase = ""


def _place(phase: str, done: int, total: int) -> str:
    return f"{phase} {100 * done // total:3d} %" if total > 0 else f"{phase}, {done:,} documents"


def end_on_request(phase: str) -> None:
    """Raise StopRequestedError if a stop was requested (signals.py) while a cache is built."""
    from mudd_core import _core

    if _core.stop_requested():
        raise StopRequestedError(
            f"[data] stop requested ({phase}); there is no token cache yet, and the next start continues after its "
            "complete parts"
        )
