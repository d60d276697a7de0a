"""A conversation at a terminal: a prompt for each message, commands that start with a slash, and Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from mudd_core.base.errors import UserError
from mudd_core.cli.chat.commands import is_command, run_command, say
from mudd_core.cli.chat.history import History
from mudd_core.cli.ending import write_now
from mudd_core.cli.text_writer import typed_line

_HELLO = "Type a message. /help lists the commands; Ctrl-C ends an answer, Ctrl-D the program."
_TWICE = "Press Ctrl-C again, or Ctrl-D, to end the program."


class Interrupts:
    """Ctrl-C: it raises KeyboardInterrupt while the program waits for a line, and ends an answer at other times."""

    def __init__(self) -> None:
        self.asked = False
        self._waits = False

    def take(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self.asked = True
        if self._waits:
            raise KeyboardInterrupt

    def line(self) -> str | None:
        """Return the next line that the user types; None at the end of the input."""
        try:
            self._waits = True
            return typed_line()
        finally:
            self._waits = False


def talk(history: History) -> int:
    """Answer messages until Ctrl-D, /quit, or Ctrl-C twice at the prompt; return the exit code."""
    say(_HELLO)
    interrupts = Interrupts()
    with _handled(interrupts):
        while (line := _next_line(interrupts)) is not None:
            try:
                if is_command(line):
                    if run_command(history, line):
                        break
                elif line.strip():
                    _answer(history, line, interrupts)
            except UserError as error:
                say(f"error: {error}")
            history.notes.say()
    return 0


def _next_line(interrupts: Interrupts) -> str | None:
    """Return the next line; None at the end of the input. Raise KeyboardInterrupt for Ctrl-C twice in a row."""
    try:
        return interrupts.line()
    except KeyboardInterrupt:
        say(f"\n{_TWICE}")
    return interrupts.line()


def _answer(history: History, line: str, interrupts: Interrupts) -> None:
    """Print the answer to a message while it is generated."""
    interrupts.asked = False
    with contextlib.closing(history.answer(line, lambda: interrupts.asked)) as pieces:
        for piece in pieces:
            write_now(piece)
    write_now("\n")


@contextlib.contextmanager
def _handled(interrupts: Interrupts) -> Iterator[None]:
    """Handle SIGINT in the block. SIGTERM ends the program at once: the shell then restores the terminal."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, interrupts.take)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
