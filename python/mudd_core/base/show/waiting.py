"""Signs of life of long work: a clock for lines in a pipe, and a line while one call takes long."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from mudd_core.base.surroundings import notes_stream

FIRST_SECONDS, NEXT_SECONDS = 2.0, 5.0  # until the first line of a phase, and between two lines
_REDRAW_SECONDS = 1.0  # on a terminal


class Pace:
    """A clock that allows a line FIRST_SECONDS after the start of a phase, then one every NEXT_SECONDS."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start a phase."""
        self._due = time.monotonic() + FIRST_SECONDS

    def wrote(self) -> None:
        """Count a line that was written for another reason."""
        self._due = time.monotonic() + NEXT_SECONDS

    def is_due(self) -> bool:
        """Return True if a line is due; the caller writes it."""
        due = time.monotonic() >= self._due
        if due:
            self.wrote()
        return due


class Waiting:
    """A thread that writes `text` and the seconds so far to standard error until close(), from FIRST_SECONDS on."""

    def __init__(self, text: str) -> None:
        self._text, self._begin, self._over = text, time.monotonic(), threading.Event()
        self._stream = notes_stream()
        self._thread = threading.Thread(target=self._write_lines, name="waiting", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and remove its line from a terminal."""
        self._over.set()
        self._thread.join()

    def _write_lines(self) -> None:
        live, pause = self._stream.isatty(), FIRST_SECONDS
        shown = False
        while not self._over.wait(pause):
            line = f"{self._text} ({time.monotonic() - self._begin:.0f} s)"
            self._write(f"\r\x1b[K{line}" if live else f"{line}\n")
            shown, pause = True, _REDRAW_SECONDS if live else NEXT_SECONDS
        if live and shown:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a full disk, or a closed stream
            self._stream.write(text)
            self._stream.flush()


@contextlib.contextmanager
def waiting(text: str, *, shown: bool = True) -> Iterator[None]:
    """Inside the block, write the text and the seconds so far if it takes longer than FIRST_SECONDS.

    shown: False on ranks that do not print.
    """
    line = Waiting(text) if shown else None
    try:
        yield
    finally:
        if line is not None:
            line.close()
