"""Standard output and standard error of a run: lines, warnings, and the progress line between them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from functools import partial

from mudd_core.run.report.progress import Progress


class Screen:
    """Prints lines. Before `open` they wait, so that an error of the start is alone on the screen.

    warned: the warnings so far, each once.
    """

    def __init__(self, progress: Progress, *, waits: bool, prints: bool) -> None:
        """prints: warnings are printed; of several ranks one does."""
        self.warned: list[str] = []
        self._progress, self._prints = progress, prints
        self._beside: Progress | None = None  # the progress line of a style whose lines are another program's
        self._ours = True  # the lines of steps are those of `step`
        self._waiting: list[Callable[[], None]] | None = [] if waits else None

    @property
    def waits(self) -> bool:
        """Whether lines wait for `open`."""
        return self._waiting is not None

    @property
    def shows(self) -> bool:
        """Whether anything is printed."""
        return self._prints and not self._progress.quiet

    def leave_lines_to_style(self) -> None:
        """From here on a style prints its lines of steps; a terminal shows the progress line on standard error."""
        self._ours, self._beside = False, self._progress.on_errors()

    def say(self, text: str) -> None:
        """A line on standard output that stays."""
        self.wipe()
        self._print(partial(self._progress.say, text))

    def warn(self, text: str) -> None:
        """A line on standard error, once."""
        if self._prints and text not in self.warned:
            self.warned.append(text)
            self.wipe()
            self._print(partial(_warn, text))

    def step(self, fields: Sequence[str], *, logged: bool) -> None:
        """Draw the progress line of an update."""
        if self._ours:
            self._progress.step(fields, logged=logged)
        elif self._beside is not None:
            self._beside.step(fields, logged=False)

    def wipe(self) -> None:
        """Remove the progress line on standard error, which the next step draws again."""
        if self._beside is not None:
            self._beside.wipe()

    def close(self) -> None:
        """End the progress line."""
        self.wipe()
        self._progress.close()

    def open(self, lines: Sequence[str], details: Sequence[str]) -> None:
        """Print the lines of the start, then those that waited. details: for the log of the run alone."""
        waiting, self._waiting = self._waiting or [], None
        for line in lines:
            self._progress.say(line)
        for line in details:
            self._progress.detail(line)
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
