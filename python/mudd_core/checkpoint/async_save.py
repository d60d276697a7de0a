"""Write a checkpoint in a thread while the run continues. Weights and moments change only in the update of a step.

Each rank's thread reads the live arrays through a LiveBytes, which the update releases first, and writes the rank's
files. No thread sends messages to other ranks: when all ranks have written, all of them call `advance` between two
steps, and then rank 0's thread commits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from mudd_core import _core
from mudd_core.checkpoint.ranks import on_all, on_first
from mudd_core.checkpoint.save import StepSave
from mudd_core.checkpoint.written import Written
from mudd_core.dist import Comm


class AsyncSave:
    """A save whose files are written by threads. The constructor starts them; all ranks call it together."""

    def __init__(
        self, save: StepSave, live: _core.LiveBytes, after: Callable[[], None], comm: Comm | None
    ) -> None:
        """Start to write.

        save: has its temporary folder. live: reads the parts. after: called on rank 0 after the commit.
        """
        self._save, self._after, self._comm = save, after, comm
        self._live = live
        self._pieces = save.pieces(live)
        self._written: list[Written] = []
        # True once rank 0 commits, after all ranks have written; a single process does both in one thread.
        self._commits = comm is None or comm.world == 1
        self._error: BaseException | None = None
        self._start(self._write)

    @property
    def works(self) -> bool:
        """True while the thread of this rank works."""
        return self._thread.is_alive()

    def advance(self) -> bool:
        """Wait for the threads, start the commit or end the save; return True if the step is committed.

        All ranks call this together, until it returns True or raises. Raise the errors of save() on all ranks.
        """
        self._thread.join()
        with self._save.errors():
            if self._commits:
                on_first(self._comm, self._result)
                return True
            written = on_all(self._comm, self._result)
        self._commits = True
        if self._comm is not None and self._comm.rank == 0:
            self._start(lambda: self._commit(written))
        return False

    def leave(self) -> Exception | None:
        """Wait for this rank's thread, without the other ranks; remove what is not committed. Return its error."""
        self._thread.join()
        self._save.close()
        return self._error if isinstance(self._error, Exception) else None

    def _start(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run, name="save")
        self._thread.start()

    def _result(self) -> list[Written]:
        """Return the records of this rank's files; raise the error of its thread."""
        if self._error is not None:
            raise self._error
        return self._written

    def _write(self) -> None:
        try:
            self._written = [piece() for piece in self._pieces]
        finally:
            self._live.end()
        if self._commits:
            self._commit([self._written])

    def _commit(self, written: list[list[Written]]) -> None:
        self._save.commit(written)
        self._after()
