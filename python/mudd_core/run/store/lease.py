"""A file that names the holder of a folder, on file systems without locks. The holder keeps renewing the file."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from pathlib import Path

from mudd_core.base.regular_files import read_bytes, write_file

LEASE_SECONDS = 60.0  # seconds after which a lease that was not renewed has expired


class Lease:
    """A lease file with the content `ours`.

    give_up: removes the file; also called when the owner is garbage-collected.
    """

    def __init__(self, file: Path, ours: bytes, owner: object) -> None:
        write_file(file, ours)
        self._file, self._ours = file, ours
        self._last_look = time.monotonic()  # monotonic, because the clock may be set back
        closing = threading.Event()
        self.give_up = weakref.finalize(owner, _give_up, file, ours, closing)
        threading.Thread(target=_keep_renewing, args=(file, ours, closing), name="lease", daemon=True).start()

    def other(self) -> bytes:
        """Return the content that another holder has written, else empty. The file is not read at every call."""
        if time.monotonic() - self._last_look <= LEASE_SECONDS / 6:
            return b""
        found = content(self._file)
        if found and found != self._ours:
            return found
        self._last_look = time.monotonic()
        return b""


def is_alive(file: Path) -> bool:
    """Return True if a holder has renewed this lease recently."""
    return file.exists() and time.time() - file.stat().st_mtime < LEASE_SECONDS


def content(file: Path) -> bytes:
    """Return the content of the lease; empty if it is missing or unreadable."""
    try:
        return read_bytes(file, links=False)
    except OSError:
        return b""


def _keep_renewing(file: Path, ours: bytes, closing: threading.Event) -> None:
    """Renew the lease in a thread, because a step, a validation or a cache build may take longer than a lease."""
    while not closing.wait(LEASE_SECONDS / 6):
        with contextlib.suppress(OSError):
            if content(file) == ours:
                os.utime(file)


def _give_up(file: Path, ours: bytes, closing: threading.Event) -> None:
    closing.set()
    if (
        content(file) == ours
    ):  # the lease of another run, acquired while this process was suspended, is not renewed
        file.unlink(missing_ok=True)
