"""A conversation through a pipe: each line of standard input is a message, each answer a line of standard output."""

from __future__ import annotations

import contextlib
import sys

from mudd_core.base.errors import UserError
from mudd_core.cli.chat.commands import is_command, run_command
from mudd_core.cli.chat.history import History
from mudd_core.cli.ending import write_now

_LINE_FEED = "\\n"  # a line feed inside an answer


def answer_lines(history: History) -> int:
    """Answer each line until the end of the input; return the exit code: 2 if the model could not answer a line.

    A line without an answer, such as a command or an empty line, has an empty line as output and a message on standard
    error.
    """
    code = 0
    for number, line in enumerate(sys.stdin.buffer, 1):
        text = line.decode("utf-8", "surrogateescape").removesuffix("\n").removesuffix("\r")
        try:
            if is_command(text):
                if run_command(history, text):
                    break
            elif text.strip():
                _answer(history, text)
            else:
                history.notes.add(f"line {number} is empty, so it has no answer")
        except UserError as error:
            code = error.exit_code
            print(f"error: {error} (line {number})", file=sys.stderr, flush=True)
        write_now("\n")
        history.notes.say()
    return code


def _answer(history: History, text: str) -> None:
    with contextlib.closing(history.answer(text)) as pieces:
        for piece in pieces:
            write_now(piece.replace("\r", "").replace("\n", _LINE_FEED))
