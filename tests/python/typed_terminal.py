"""A program in a pseudo-terminal, with a user's keyboard input."""

from __future__ import annotations

import codecs
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

MARK = "> "  # the end of a prompt for input


class TypedTerminal:
    """A program whose standard streams are a terminal. shown: its output since the last mark."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
    ) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.shown = ""

    def read(self) -> None:
        """Read the next output; a character may come in two pieces."""
        self.shown += self._decoder.decode(os.read(self._ours, 65536))

    def ready(self, seconds: float) -> bool:
        """Return True if there is output within these seconds."""
        # select.select() refuses descriptors of 1024 and above.
        waiting = select.poll()
        waiting.register(self._ours, select.POLLIN)
        return bool(waiting.poll(seconds * 1000))

    def type(self, text: str) -> None:
        """Type this string, which the terminal also echoes."""
        os.write(self._ours, text.encode())

    def wait(self, reached: Callable[[str], bool]) -> str:
        """Return the output once `reached` accepts it. Raise AssertionError after a minute."""
        end = time.monotonic() + 60
        while not reached(self.shown):
            assert time.monotonic() < end, self.shown
            if self.ready(0.2):
                try:
                    self.read()
                except OSError:  # the program has ended
                    assert reached(self.shown), self.shown
        return self.shown

    def mark(self) -> str:
        """Wait for the next prompt mark, and return the output before it."""
        shown = self.wait(lambda shown: shown.endswith(MARK))
        self.shown = ""
        return shown.removesuffix(MARK)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def code(self) -> int:
        """Return the exit code."""
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()
            os.close(self._ours)
