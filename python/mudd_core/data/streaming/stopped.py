"""Notice tokenizing processes that a signal has stopped (SIGSTOP), which answer nothing and do not end."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

LIMIT = 60.0  # seconds that a process may be stopped before it is ended and replaced
_LOOK_EVERY = 1.0
_ON_STOP = 5.0  # seconds of the limit once the run is asked to stop


def is_stopped(pid: int) -> bool:
    """Whether a process is in the state `stopped`; False where /proc does not say."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in ("T", "t")


def end_stopped(children: Sequence[subprocess.Popen[bytes]], ended: threading.Event) -> None:
    """Name each stopped process on stderr once, and end it after LIMIT; return when `ended` is set.

    The run then finds it dead, as it finds a killed one, and starts another.
    """
    from mudd_core import _core

    since: dict[int, float] = {}
    while not ended.wait(_LOOK_EVERY):
        for child in list(children):
            if child.returncode is not None or not is_stopped(child.pid):
                since.pop(child.pid, None)
                continue
            if child.pid not in since:
                since[child.pid] = time.monotonic()
                print(
                    f"warning: [data.cache] process {child.pid}, which tokenizes, is stopped by a signal; "
                    f"continue it: kill -CONT {child.pid}; after {LIMIT:.0f} s it is replaced",
                    file=sys.stderr,
                    flush=True,
                )
            limit = min(LIMIT, _ON_STOP) if _core.stop_requested() else LIMIT
            if time.monotonic() - since[child.pid] > limit:
                child.kill()
