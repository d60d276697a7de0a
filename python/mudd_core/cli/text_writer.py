"""Output of `sample`: generated text on standard output, notes on standard error.

With --interactive each line of standard input is a prompt, which is answered before the next line is read.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.cli.ending import silent, write_now
from mudd_core.config import SampleConfig
from mudd_core.run.ranks.ranks import Ranks

if TYPE_CHECKING:
    from mudd_core.data.tokenizers.tokenizer import Tokenizer
    from mudd_core.engine.model import Model

_BETWEEN = "---\n"
_MARK = "> "


@dataclass
class Writer:
    """Writes samples, each with the next seed. note: called with a line about a truncated sample.

    stopped: returns True if a stop was requested, which ends a sample. shown: False on ranks that only compute.
    """

    model: Model
    tokenizer: Tokenizer
    settings: SampleConfig
    stops: Sequence[str]
    note: Callable[[str], None]
    stopped: Callable[[], bool] = lambda: False
    shown: bool = True
    between: str = _BETWEEN
    _written: int = 0

    def check(self, prompt: str) -> None:
        """Raise UserError for a prompt that the model cannot continue with these settings."""
        from mudd_core.run.report.sample import prompt_ids

        prompt_ids(self.model, self.tokenizer, prompt, self.settings)

    def write(self, prompt: str, count: int, ended: Callable[[], bool] = lambda: False) -> None:
        """Write a prompt and its continuation, `count` times or until ended() is true."""
        from mudd_core.run.report.sample import write_text

        self.check(prompt)  # checked before anything is written
        out = write_now if self.shown else silent
        done = False

        def ends() -> bool:
            nonlocal done
            done = ended() or self.stopped()
            return done

        for _ in range(count):
            out((self.between if self._written else "") + prompt)
            own = replace(self.settings, seed=self.settings.seed + self._written)
            write_text(self.model, self.tokenizer, prompt, own, out, self.note, self.stops, ends)
            out("\n")
            self._written += 1
            if done:
                return


def say(notes: dict[str, None]) -> None:
    """Print the notes on stderr, and clear them."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    notes.clear()


def answer_lines(
    writer: Writer,
    count: int,
    notes: dict[str, None],
    ranks: Ranks,
    answering: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> None:
    """Write `count` samples for each line, until an empty line or the end of the input.

    ranks: all of them generate together; rank 0 reads the lines. answering: returns a context manager for each answer.

    An error of one line is printed, and the next line is read. Ctrl-C ends an answer; at the prompt, or a second time
    during an answer, it raises KeyboardInterrupt. If the output is not a terminal, the line --- separates samples.
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
    """Return the next line of standard input without its line feed; empty at the end of the input."""
    return (typed_line() or "") if sys.stdin.isatty() else _piped()


def typed_line() -> str | None:
    """Return a line that the user types at a terminal; None at the end of the input."""
    with contextlib.suppress(ImportError):
        importlib.import_module("readline")  # adds line editing and history
    try:
        if sys.stdout.isatty():
            return input(_MARK)
        print(_MARK, end="", file=sys.stderr, flush=True)  # the output is a file, so the mark goes to stderr
        return input()
    except EOFError:
        print(file=sys.stderr)
        return None


def _piped() -> str:
    """Return a line of a pipe or file; empty at the end.

    Bytes that are not UTF-8 are rejected later, with the prompt.
    """
    line = sys.stdin.buffer.readline().decode("utf-8", "surrogateescape")
    return line.removesuffix("\n").removesuffix("\r")


@contextlib.contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Yield a function that is true after Ctrl-C; a second Ctrl-C in the block raises KeyboardInterrupt."""
    asked = False

    def take(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    usual = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )  # otherwise SIGINT is ignored, or a program handles it
    if not usual or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    signal.signal(signal.SIGINT, take)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
