"""The history of a conversation on the command line."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.types import JsonObject
from mudd_core.config import SampleConfig
from mudd_core.run.opened.chat import Chat
from mudd_core.run.opened.chat_messages import checked_messages, system_message

_VARIABLES = "chat_template_kwargs"  # the key from which tune reads variables of the template


class Notes:
    """Lines for the user, which are printed on standard error after an answer."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, text: str) -> None:
        """Add a line."""
        self._lines.append(text)

    def say(self) -> None:
        """Print the lines, and clear them."""
        for line in self._lines:
            print(f"note: {line}", file=sys.stderr, flush=True)
        self._lines.clear()


class History:
    """The messages so far, and the model that answers the next one.

    A message that gets no answer is taken back, so the history always ends with an answer. notes: of the model.
    """

    def __init__(
        self, chat: Chat, settings: SampleConfig, system: str, variables: JsonObject, notes: Notes
    ) -> None:
        """Raise UserError if the template cannot render a first message with this system message."""
        self._chat, self._settings, self._variables, self.notes = chat, settings, variables, notes
        self._system = checked_messages([*system_message(system), {"role": "user", "content": "x"}])[:-1]
        self._messages = list(self._system)
        chat.check(self._system, variables)

    @property
    def turns(self) -> int:
        """The number of answers so far."""
        return sum(one["role"] == "assistant" for one in self._messages)

    def answer(self, text: str, stopped: Callable[[], bool] = lambda: False) -> Generator[str]:
        """Yield the pieces of the answer to a message.

        Raise UserError for a message that cannot be answered.
        """
        messages = checked_messages([*self._messages, {"role": "user", "content": text}])
        parts: list[str] = []
        try:
            for piece in self._chat.pieces(messages, self._settings, self._variables, stopped):
                parts.append(piece)
                yield piece
        finally:
            if (said := "".join(parts)).strip():
                self._messages = [*messages, {"role": "assistant", "content": said}]
        if not said.strip():
            self.notes.add("the answer is empty, so the message is taken back")

    def reset(self) -> None:
        """Start a new conversation with the same system message."""
        self._messages = list(self._system)

    def save(self, file: Path) -> None:
        """Append the conversation to a jsonl file as one line, complete or not at all.

        Raise UserError if there is no answer yet, or if the file cannot be written.
        """
        if not self.turns:
            raise UserError("[chat] /save: expected a conversation with an answer; send a message first")
        record: JsonObject = {"messages": [*self._messages]}
        if self._variables:
            record[_VARIABLES] = self._variables
        try:
            _append(file, (json.dumps(record, ensure_ascii=False) + "\n").encode())
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UserError(
                f"[chat] /save: expected a file that can be written, got '{file}': {reason}; name another file"
            ) from None


def _append(file: Path, line: bytes) -> None:
    """Append a line to a file, and first the line feed that its last line lacks; undo a partial write."""
    is_new = not file.exists()
    if not is_new and not file.is_file():
        raise OSError(errno.EINVAL, "not a regular file")
    with file.open("ab+", buffering=0) as out:
        end = out.seek(0, os.SEEK_END)
        out.seek(max(0, end - 1))
        data = line if out.read(1) in (b"", b"\n") else b"\n" + line
        try:
            if out.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            with contextlib.suppress(OSError):
                out.truncate(end)
                if is_new:
                    file.unlink()
            raise
