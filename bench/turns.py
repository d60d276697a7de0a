"""Let programs take their steps in turn, so that a slow second of the machine affects all of them alike.

A program waits before each turn for a line on its standard input (`turns`). The measuring process has the other end of
the pipe (mudd_core.cli.race.turns.Program). In a program of several ranks, rank 0 reads the lines and passes them on
(`Ranks`). This module does not import mudd_core, because programs without it use it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

WAITING = "waiting for a turn"


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
