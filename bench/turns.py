"""Let programs take their steps in turn, so that a slow second of the machine affects all of them alike.

A program waits before each turn for a line on its standard input (`turns`). The measuring process has the other end of
the pipe (`Program`) and lets one program step at a time while the others sleep. In a program of several ranks, rank 0
reads the lines and passes them on (`Ranks`).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WAITING = "waiting for a turn"
PAUSE = 0.02  # seconds after a turn: idle threads of the last program may spin for some milliseconds


class Ranks:
    """Pass each turn from rank 0 to the other ranks through named pipes, on which they sleep.

    A barrier would be simpler, but ranks that wait in one keep waking up and disturb the program that runs.
    """

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        """Open the pipes. folder: used by these ranks only, on a disk that all of them can read."""
        self.first = rank == 0
        self._pipes = []
        for other in range(1, world) if self.first else (rank,):
            pipe = folder / f"turns_{other}"
            with contextlib.suppress(FileExistsError):
                os.mkfifo(pipe)
            self._pipes.append(os.open(pipe, os.O_RDWR))

    def turn(self) -> None:
        """On rank 0, release the other ranks; on the others, wait for rank 0."""
        for pipe in self._pipes:
            if self.first:
                os.write(pipe, b"\n")
            else:
                os.read(pipe, 1)


def turns(count: int, in_turn: bool, ranks: Ranks | None = None, length: int = 1) -> Iterator[int]:
    """Yield the indices of the steps, `length` of them in each turn; without `in_turn` all steps are one turn."""
    for step in range(count):
        if in_turn and step % length == 0:
            if ranks is None or ranks.first:
                print(WAITING, flush=True)
                if not sys.stdin.readline():
                    raise SystemExit("[turns] standard input: expected a line for each turn, got its end")
            if ranks is not None:
                ranks.turn()
        yield step


class Program:
    """A process whose loop is `turns`. Its last line of output is a JSON object."""

    def __init__(self, argv: list[str], environment: dict[str, str]) -> None:
        """Start the process and wait until it is ready for its first step."""
        self._last = ""
        self._process = subprocess.Popen(
            argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._until_waiting()

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

    def report(self) -> dict[str, Any] | None:
        """Return the JSON object of the last line; None if the program failed."""
        if self._process.wait() != 0:
            return None
        found: dict[str, Any] = json.loads(self._last)
        return found

    def stop(self) -> None:
        """End the program early."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # the program ended before this turn
                    pipe.close()


def take_turns(programs: list[Program], count: int) -> list[dict[str, Any] | None]:
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
