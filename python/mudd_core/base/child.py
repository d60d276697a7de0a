"""A child process in Python: pipes to it, a wait that a stop interrupts, how it ended, and its end.

It starts in a new session: Ctrl-C reaches this process alone, which then ends the child. A program reads its input up
to the end, which comes with the end of this process, so that a child does not outlive it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

_TICK = 0.2  # seconds after which a stop is noticed
_CALL = "import sys; sys.path[:] = sys.argv[1:]; from {} import main; main()"


class Child:
    """A running child process."""

    def __init__(
        self,
        program: str | Path,
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        hears_errors: bool = False,
        buffered: bool = True,
    ) -> None:
        """Start the process; OSError if there is no Python.

        program: a module with main() on the sys.path of this process; or a script without mudd_core, which gets the
        arguments and then sys.path. environment: in addition to this process's own. hears_errors: `errors` is a
        pipe too, else the process writes to the stderr of this one.
        """
        if isinstance(program, Path):
            command = [sys.executable, "-I", "-S", str(program), *arguments, *sys.path]
        else:
            command = [sys.executable, "-c", _CALL.format(program), *sys.path]
        self.process = subprocess.Popen(
            command,
            bufsize=-1 if buffered else 0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if hears_errors else None,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        self.pid = self.process.pid

    @property
    def input(self) -> IO[bytes]:
        """The pipe that the process reads; a write raises OSError once it is gone."""
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def output(self) -> IO[bytes]:
        """The pipe that the process writes."""
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def errors(self) -> IO[bytes]:
        """The pipe of its stderr, if it was started with hears_errors."""
        assert self.process.stderr is not None
        return self.process.stderr

    def wait_for_output(self, check: Callable[[], None]) -> None:
        """Return when there is output or its end. check: called five times a second; its error ends the wait."""
        while not select.select([self.output], [], [], _TICK)[0]:
            check()

    def all_output(self, data: bytes, seconds: float) -> tuple[bytes, bytes]:
        """Send all input, return all output and errors, and end the process; TimeoutError after `seconds`."""
        try:
            return self.process.communicate(data, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        finally:
            self.end()

    def is_running(self) -> bool:
        """Return False once a wait has found that the process ended."""
        return self.process.returncode is None

    def code(self) -> int:
        """Wait for the end and return the exit code, or the negative number of the signal."""
        return self.process.wait()

    def ending(self, hint: str = "") -> str:
        """Wait for the end and return the signal or the exit code as text. hint: follows the name of a signal."""
        code = self.code()
        return f"signal {signal.Signals(-code).name}{hint}" if code < 0 else f"code {code}"

    def kill(self) -> None:
        """Send SIGKILL; nothing where the process has ended."""
        self.process.kill()

    def end(self) -> None:
        """Kill the process, wait for it and close its pipes; a second time does nothing."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):  # some of the input was not sent
                    pipe.close()
