"""Progress of work on data: one line rewritten on a terminal, one line in all elsewhere."""

from __future__ import annotations

import time
from typing import TextIO

from mudd_core.base.errors import StopRequestedError
from mudd_core.base.surroundings import notes_stream

_WIPE = "\r\x1b[K"  # to the beginning of the line, which is cleared


class ConsoleProgress:
    """Called with (phase, done, total); writes to `stream` (standard error, in a notebook the output).

    A terminal has one line, rewritten, and removed at the end of each phase. Elsewhere one line is written: `what`, or
    the first phase without it. A call with a total of 0 is a note, which stays in both.
    """

    def __init__(self, stream: TextIO | None = None, what: str = "") -> None:
        self._stream = stream if stream is not None else notes_stream()
        self._what = what
        self._phase = ""
        self._open = False
        self._last = 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        if not total:
            self._line(phase)
        elif self._stream.isatty():
            self._draw(phase, done, total)
        elif not self._phase:
            self._line(self._what or phase)
        self._phase = phase

    def _draw(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        if done >= total:
            self._wipe()
        elif phase != self._phase or now - self._last >= 0.1:
            self._last, self._open = now, True
            self._write(f"{_WIPE}data: {phase} {100 * done // total:3d} %")

    def _wipe(self) -> None:
        if self._open:
            self._open = False
            self._write(_WIPE)

    def _line(self, text: str) -> None:
        self._wipe()
        self._write(f"data: {text}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def close(self, text: str = "") -> None:
        """End the work: remove the rewritten line, and write a last one where there is something to say."""
        self._wipe()
        if text:
            self._line(text)
        self._phase = ""


def end_on_request(phase: str) -> None:
    """StopRequestedError if a stop was requested (signals.py) while a cache is built."""
    from mudd_core import _core

    if _core.stop_requested():
        raise StopRequestedError(
            f"[data] stop requested ({phase}); there is no token cache yet, and the next start continues after its "
            "complete parts"
        )
