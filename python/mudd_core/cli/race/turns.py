"""Programs that take their steps in turn, so that a slow second of the machine affects all of them alike.

A program waits before each step for a line on its standard input; the measuring process has the other end of the pipe
and lets one program step at a time while the others sleep. The last line of a program's output is a JSON object.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence

from mudd_core.base.types import JsonObject

WAITING = "waiting for a turn"  # the line that a program prints before each turn
PAUSE = 0.02  # seconds after a turn: idle threads of the last program may spin for some milliseconds


def turns(count: int) -> Iterator[int]:
    """Yield the indices of the steps of this process, each after a line on standard input."""
    for step in range(count):
        try:
            print(WAITING, flush=True)
            input()
        except (BrokenPipeError, EOFError):
            # The measuring process has ended. A normal exit would write to the closed pipe once more.
            os._exit(1)
        yield step


class Program:
    """A process that takes its steps in turn."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the process and wait until it is ready for its first step."""
        self._last = ""
        self._process = subprocess.Popen(
            argv,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # A Ctrl-C of the terminal reaches the measuring process alone, which ends this one.
            start_new_session=True,
        )
        try:
            self._until_waiting()
        except KeyboardInterrupt:
            self.stop()
            raise

    def _until_waiting(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == WAITING:
                return
            self._last = line
        self._process.wait()

    def step(self) -> None:
        """Let the program take one step; it ends after the last. Raise BrokenPipeError if it has ended already."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._until_waiting()
        time.sleep(PAUSE)

    def report(self) -> JsonObject | None:
        """Return the JSON object of the last line; empty if it is another line, None if the program failed."""
        if self._process.wait() != 0:
            return None
        try:
            found = json.loads(self._last)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def stop(self) -> None:
        """End the program early."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # the program ended before this turn
                    pipe.close()


def take_turns(programs: Sequence[Program], count: int) -> list[JsonObject | None]:
    """Give each program `count` turns, one after another in the given order; return their reports."""
    try:
        for _ in range(count):
            for program in programs:
                program.step()
        return [program.report() for program in programs]
    except BrokenPipeError:
        return [None for _ in programs]
    finally:
        for program in programs:
            program.stop()
