"""Progress of a cache build: one line rewritten on a terminal, a line for each phase in a file."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from mudd_core.base.errors import StopRequestedError


class ConsoleProgress:
    """Called with (phase, done, total); writes to `stream` (standard error)."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._phase = ""
        self._last = 0.0

    def __call__(self, phase: str, done: int, total: int) -> None:
        now = time.monotonic()
        terminal = self._stream.isatty()
        is_new = phase != self._phase
        ends = done >= total
        if not is_new and not (terminal and (ends or now - self._last >= 0.1)):
            return
        self._last = now
        if terminal:
            if is_new and self._phase:
                self._stream.write("\n")
            share = 100 * done // max(total, 1)
            self._stream.write(f"\rdata: {phase} {share:3d} %")
        else:
            self._stream.write(f"data: {phase}\n")
        self._phase = phase
        self._stream.flush()

    def close(self, text: str) -> None:
        """Last line of a build."""
        if self._phase and self._stream.isatty():
            self._stream.write("\n")
        self._stream.write(f"data: {text}\n")
        self._stream.flush()
        self._phase = ""


def end_on_request(phase: str) -> None:
    """StopRequestedError if a stop was requested (signals.py) while a cache is built."""
    from mudd_core import _core

    if _core.stop_requested():
        raise StopRequestedError(
            f"[data] stop requested ({phase}); there is no token cache yet, and the next start continues after its "
            "complete parts"
        )
