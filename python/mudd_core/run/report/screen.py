"""Standard output and standard error of a run, whose first lines wait until its start has succeeded."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from functools import partial

from mudd_core.run.report.progress import Progress


class Screen:
    """Prints lines. Before `open` they wait, so that an error of the start is alone on the screen."""

    def __init__(self, progress: Progress, *, waits: bool) -> None:
        self.progress = progress
        self._waiting: list[Callable[[], None]] | None = [] if waits else None

    @property
    def waits(self) -> bool:
        """Whether lines wait for `open`."""
        return self._waiting is not None

    def say(self, text: str) -> None:
        """A line on standard output that stays."""
        self._print(partial(self.progress.say, text))

    def warn(self, text: str) -> None:
        """A line on standard error."""
        self._print(partial(_warn, text))

    def open(self, lines: Sequence[str], details: Sequence[str]) -> None:
        """Print the lines of the start, then those that waited. details: for the log of the run alone."""
        waiting, self._waiting = self._waiting or [], None
        for line in lines:
            self.progress.say(line)
        for line in details:
            self.progress.detail(line)
        for print_line in waiting:
            print_line()

    def _print(self, print_line: Callable[[], None]) -> None:
        if self._waiting is None:
            print_line()
        else:
            self._waiting.append(print_line)


def _warn(text: str) -> None:
    with contextlib.suppress(OSError):  # the disk behind standard error may be full
        print(f"warning: {text}", file=sys.stderr)
