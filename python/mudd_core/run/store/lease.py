"""A file that says who holds a folder, on file systems without locks; renewed as long as the holder lives."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from pathlib import Path

from mudd_core.base.regular_files import read_bytes, write_file

LEASE_SECONDS = 60.0  # a lease not renewed for so long is dead


class Lease:
    """A lease file with `ours` in it. give_up: removes it; called at the latest when the owner is dropped."""

    def __init__(self, file: Path, ours: bytes, owner: object) -> None:
        write_file(file, ours)
        self._file, self._ours = file, ours
        self._last_look = time.monotonic()  # a clock may be set back
        closing = threading.Event()
        self.give_up = weakref.finalize(owner, _give_up, file, ours, closing)
        threading.Thread(target=_keep_renewing, args=(file, ours, closing), name="lease", daemon=True).start()

    def other(self) -> bytes:
        """Return what another holder has written over the lease, else nothing; reads the file now and then only."""
        if time.monotonic() - self._last_look <= LEASE_SECONDS / 6:
            return b""
        found = content(self._file)
        if found and found != self._ours:
            return found
        self._last_look = time.monotonic()
        return b""


def is_alive(file: Path) -> bool:
    """Return whether a holder has renewed this lease lately."""
    return file.exists() and time.time() - file.stat().st_mtime < LEASE_SECONDS


def content(file: Path) -> bytes:
    """What the lease says now; empty if there is none, or none that can be read."""
    try:
        return read_bytes(file, links=False)
    except OSError:
        return b""


def _keep_renewing(file: Path, ours: bytes, closing: threading.Event) -> None:
    """In a thread, since a step, a validation or the building of a cache may take longer than a lease lives."""
    while not closing.wait(LEASE_SECONDS / 6):
        with contextlib.suppress(OSError):
            if content(file) == ours:
                os.utime(file)


def _give_up(file: Path, ours: bytes, closing: threading.Event) -> None:
    closing.set()
    if content(file) == ours:  # not another run's, which took it from a halted one
        file.unlink(missing_ok=True)
