"""The processes that started this rank: when one of them is killed, the rank ends too and releases its lock."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from pathlib import Path

# The process id of launch.py --ranks; mpirun passes it only to the ranks of its host.
JOB_PROCESS = "MUDD_JOB_PROCESS"
_ORDERLY_SECONDS = 3.0  # seconds that mpirun has to end its ranks after launch.py has ended
_MPIRUN = ("mpirun", "orterun")


def follow() -> None:
    """End this process when its launcher ends. Call it once, in a process that a launcher started."""
    parent = os.getppid()
    try:
        files = [os.pidfd_open(parent)]
    except OSError:
        # The launcher has ended already, or the kernel lacks pidfd. Then only MPI notices the loss of mpirun.
        files = []
    if os.getppid() != parent:
        _end()
    if not files:
        return
    job = os.environ.get(JOB_PROCESS, "")
    if job.isdecimal() and _name(parent) in _MPIRUN:
        try:
            files.append(os.pidfd_open(int(job)))
        except ProcessLookupError:
            _end(parent)
        except (OSError, OverflowError):
            pass
    threading.Thread(target=_watch, args=(parent, files), name="mudd-launcher", daemon=True).start()


def _watch(parent: int, files: list[int]) -> None:
    if files[0] not in _ended(files, None):
        # launch.py was killed. mpirun has received SIGTERM, but ignores it while it starts its ranks.
        _ended(files[:1], _ORDERLY_SECONDS)
        _end(parent)
    _end()


def _ended(files: list[int], seconds: float | None) -> list[int]:
    """Wait until a process ends. Return the pidfds of all that have ended; an empty list after `seconds`."""
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return [file for file, _ in poll.poll(None if seconds is None else seconds * 1000)]


def _name(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _end(parent: int | None = None) -> None:
    """Kill mpirun, if it is still this process's parent, and this process. This leaves no half-written file."""
    if parent is not None and os.getppid() == parent:
        with contextlib.suppress(OSError):
            os.kill(parent, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
