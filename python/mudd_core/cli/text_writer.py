"""The texts of `sample` on standard output, and its notes on standard error.

With --interactive each line of standard input is a prompt, answered before the next one is read.
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
    """Writes texts of a model, the seed of each one higher. note: gets a line for a text that is cut.

    stopped: whether a stop was asked for, which ends a text. shown: else a rank only takes part in the text.
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
        """UserError for a prompt that the model cannot continue with these settings."""
        from mudd_core.run.report.sample import prompt_ids

        prompt_ids(self.model, self.tokenizer, prompt, self.settings)

    def write(self, prompt: str, count: int, ended: Callable[[], bool] = lambda: False) -> None:
        """Write a prompt and what follows it, `count` times or until ended() is true."""
        from mudd_core.run.report.sample import write_text

        self.check(prompt)  # before anything is written
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
    """Print the notes on standard error, and forget them."""
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
