"""Whether a run trains now, as far as its folder says so; no lock is taken, since that could refuse a start."""

from __future__ import annotations

import json
import os
import socket
import time

from mudd_core.base.regular_files import read_bytes
from mudd_core.run.store.lease import is_alive
from mudd_core.run.store.run_folder import LEASE, LOCK, RunFolder

_QUIET = 600.0  # seconds without a row after which a run on another host counts as ended


def is_running(folder: RunFolder) -> bool:
    """Whether the holder that the lock file names is a process of this host, or another host has written lately."""
    if is_alive(folder.path / LEASE):
        return True
    try:
        holder = json.loads(read_bytes(folder.path / LOCK, links=False))
        process, host = int(holder["pid"]), str(holder["host"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False  # nobody: the file is empty between runs
    if host != socket.gethostname():
        file = folder.metrics_file
        return file.is_file() and time.time() - file.stat().st_mtime < _QUIET
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return process > 0
