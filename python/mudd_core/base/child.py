"""A child Python process: its pipes, a wait that a stop interrupts, and its exit code.

The child starts in a new session, so Ctrl-C reaches only this process, which then ends the child. The program reads its
input until end of file, which also comes when this process ends, so a child does not outlive it.
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

_TICK = 200  # milliseconds between checks for a stop
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

        program: a module with main() on the sys.path of this process, or a script without mudd_core, whose arguments
        are followed by sys.path. environment: added to this process's environment. hears_errors: connect the child's
        stderr to the pipe `errors`, otherwise to the stderr of this process.
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
        """The pipe that the process reads; a write raises OSError after the process has ended."""
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def output(self) -> IO[bytes]:
        """The pipe that the process writes."""
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def errors(self) -> IO[bytes]:
        """The pipe of its stderr; only with hears_errors."""
        assert self.process.stderr is not None
        return self.process.stderr

    def wait_for_output(self, check: Callable[[], None]) -> None:
        """Return when there is output or end of file. check: called five times a second; its error ends the wait."""
        # select.select() refuses descriptors of 1024 and above.
        waiting = select.poll()
        waiting.register(self.output, select.POLLIN)
        while not waiting.poll(_TICK):
            check()

    def all_output(self, data: bytes, seconds: float) -> tuple[bytes, bytes]:
        """Send all input, return all output and errors, and end the process. Raise TimeoutError after `seconds`."""
        try:
            return self.process.communicate(data, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        finally:
            self.end()

    def is_running(self) -> bool:
        """Return False once a method that waits has noticed the end of the process."""
        return self.process.returncode is None

    def code(self) -> int:
        """Wait for the end and return the exit code, or the negative signal number."""
        return self.process.wait()

    def ending(self, hint: str = "") -> str:
        """Wait for the end and return the signal or the exit code as a string. hint: follows the name of a signal."""
        code = self.code()
        return f"signal {signal.Signals(-code).name}{hint}" if code < 0 else f"code {code}"

    def kill(self) -> None:
        """Send SIGKILL; do nothing if the process has ended."""
        self.process.kill()

    def end(self) -> None:
        """Kill the process, wait for it and close its pipes; a second call does nothing."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):  # the process ended before it read all input
                    pipe.close()
