"""`sample --interactive`: a prompt on each line of standard input, answered before the next one is read."""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from mudd_core.base.errors import UserError
from mudd_core.cli.text_writer import Writer, say
from mudd_core.run.ranks.ranks import Ranks

_MARK = "> "


def answer_lines(
    writer: Writer,
    count: int,
    notes: dict[str, None],
    ranks: Ranks,
    answering: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> None:
    """Write `count` texts for each line, up to an empty line or the end of the input.

    ranks: they answer together; rank 0 reads the lines. answering: gives what is around each answer.

    An error of one line is printed, and the next line is read. Ctrl-C ends an answer; at the prompt, or a second time
    during an answer, it raises KeyboardInterrupt. On a terminal nothing separates the texts, else the line ---.
    """
    if ranks.first and sys.stdin.isatty():
        writer.between = ""
        print(
            "Each line is a prompt that the model continues. An empty line or Ctrl-D ends; Ctrl-C ends an answer.",
            file=sys.stderr,
        )
    while not writer.stopped() and (line := ranks.from_first(_line)):
        try:
            with answering(), _interruptible() as ended:
                writer.write(line, count, ended)
        except UserError as error:
            if ranks.first:
                print(f"error: {error}", file=sys.stderr)
        say(notes)


def _line() -> str:
    """The next line of standard input without its end; empty at the end of the input."""
    return _typed() if sys.stdin.isatty() else _piped()


def _typed() -> str:
    """A line of a terminal; empty at its end."""
    with contextlib.suppress(ImportError):
        importlib.import_module("readline")  # the keys of the line and its history
    try:
        if sys.stdout.isatty():
            return input(_MARK)
        print(_MARK, end="", file=sys.stderr, flush=True)  # the output is a file
        return input()
    except EOFError:
        print(file=sys.stderr)
        return ""


def _piped() -> str:
    """A line of a pipe or file; empty at its end. What is not UTF-8 is refused where the prompt is encoded."""
    line = sys.stdin.buffer.readline().decode("utf-8", "surrogateescape")
    return line.removesuffix("\n").removesuffix("\r")


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Give a function that is true after Ctrl-C; a second Ctrl-C inside raises KeyboardInterrupt."""
    asked = False

    def take(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    usual = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )  # else it is ignored, or a program's own
    if not usual or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    signal.signal(signal.SIGINT, take)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
