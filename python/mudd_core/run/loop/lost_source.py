"""Retries for data files that are unreachable for a while. If they fail, the run saves and exits with code 74."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from typing import TypeVar

from mudd_core import _core
from mudd_core.base.errors import SaveError
from mudd_core.run.records.phases import Phase, PhaseClock

# The errors of a network file system in an outage: missing file, I/O error, stale handle after a remount.
LOST = (errno.ENOENT, errno.EIO, errno.ESTALE)
Result = TypeVar("Result")


class SourceLostError(SaveError):
    """The error of a batch that could not be read (exit code 74). The run is complete up to the previous step."""


def pause(seconds: float) -> None:
    """Wait for `seconds`, or until a stop is requested."""
    end = time.monotonic() + seconds
    while not _core.stop_requested() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 0.1))


class LostSource:
    """Retries a read while data files are unreachable: `retries` times, after 1, 2, 4 and so on seconds."""

    def __init__(
        self,
        retries: int,
        reopen: Callable[[], None],
        lost: Callable[[int, str, str, int, float], None],
        phases: PhaseClock | None = None,
    ) -> None:
        """Store the callbacks. reopen: opens the files again. lost: called with step, place, reason, retry, seconds.

        phases: the clock of the loop; retries are in its phase `data`.
        """
        self._retries, self._reopen, self._lost = retries, reopen, lost
        self._phases = phases or PhaseClock()

    def reading(self, step: int, read: Callable[[], Result]) -> Result | None:
        """Return the result of `read`; None if a stop was requested meanwhile.

        Raise SourceLostError if all retries fail. `read` must change nothing if it raises OSError.
        """
        error = self._tried(read)
        if not isinstance(error, OSError):
            return error
        with self._phases.phase(Phase.DATA):
            return self._retried(step, read, error)

    def _retried(self, step: int, read: Callable[[], Result], error: OSError) -> Result | None:
        for number in range(1, self._retries + 1):
            seconds = float(2 ** (number - 1))
            place, reason = str(error.filename or "the data"), os.strerror(error.errno or 0)
            self._lost(step, place, reason, number, seconds)
            pause(seconds)
            if _core.stop_requested():
                return None
            again = self._tried(lambda: self._read_anew(read))
            if not isinstance(again, OSError):
                return again
            error = again
        raise SourceLostError(
            f"[data] {error.filename or 'the data'}: {os.strerror(error.errno or 0)} while step "
            f"{step} was read, {self._retries + 1} times; earlier steps are saved: start the same "
            "command again when the data are back (data.retries)"
        )

    def _read_anew(self, read: Callable[[], Result]) -> Result:
        self._reopen()
        return read()

    def _tried(self, read: Callable[[], Result]) -> Result | OSError:
        try:
            return read()
        except OSError as error:
            if error.errno not in LOST:
                raise
            return error
