"""The use of the machine between two log entries: cores of this process, of its children and of others, and memory."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from mudd_core import _core
from mudd_core.run.ranks.core_kinds import fast_cores
from mudd_core.run.ranks.other_load import OtherLoad, ticks_of_children

LOAD = "load"  # key in metrics.jsonl
_LEAST_SECONDS = 0.5  # between two measurements, because one reads several files of /proc
_PAGE_IN = 1e-4  # seconds of a major page fault from an SSD, if the kernel does not measure stalls


class LoadMeter:
    """A meter of the load. alone: this is the only rank, so that all other processes are none of this run.

    The load has the means of a time span of `seconds`. cores: of this process. workers: cores of its child processes.
    others: cores of other processes, only if alone. stalled: the fraction of the time in which processes waited for
    memory. swapped: bytes of this process in swap. read: bytes a second from disks. bound, allowed: cores of the
    affinity mask, and of the control group. threads: compute threads.
    """

    def __init__(self, *, alone: bool, proc: Path = Path("/proc")) -> None:
        """Start the measurement. proc: the folder with the kernel's files."""
        self._others = OtherLoad(proc / "stat") if alone else None
        self._proc, self._allowed = proc, allowed_cores(proc)
        self._last = self._read()

    def take(self) -> dict[str, float]:
        """Return the load since the last call that returned one; empty after less than 0.5 s."""
        last = self._last
        if time.monotonic() - last[0] < _LEAST_SECONDS:
            return {}
        self._last = now = self._read()
        seconds, own, children, faults, pressure, read = (b - a for a, b in zip(last, now, strict=True))
        swapped = self._number_after("self/status", "VmSwap:") << 10
        stalled = max(pressure, faults * _PAGE_IN if swapped else 0.0)
        load = {
            "seconds": round(seconds, 6),
            "cores": round(own / seconds, 3),
            "workers": round(max(0.0, children) / seconds, 3),
            "stalled": round(min(1.0, stalled / seconds), 4),
            "swapped": float(swapped),
            "read": float(round(read / seconds)),
            "bound": float(len(os.sched_getaffinity(0))),
            "allowed": float(self._allowed),
            "threads": float(_core.num_threads()),
        }
        if self._others is not None:
            load["others"] = round(self._others.take(), 3)
        return load

    def _read(self) -> tuple[float, float, float, float, float, float]:
        """Return time, CPU seconds of this process and its children, major faults, stalled seconds, bytes read."""
        own = os.times()
        children = own[2] + own[3] + ticks_of_children(os.getpid()) / os.sysconf("SC_CLK_TCK")
        faults = float(resource.getrusage(resource.RUSAGE_SELF).ru_majflt)
        pressure = self._number_after("pressure/memory", "total=") / 1e6
        read = self._number_after("self/io", "\nread_bytes:")
        return time.monotonic(), own[0] + own[1], children, faults, pressure, float(read)

    def _number_after(self, file: str, name: str) -> int:
        """Return the number after a name in a file of /proc; 0 if the kernel has no such file."""
        try:
            text = (self._proc / file).read_text(encoding="utf-8", errors="replace")
            return int(text.partition(name)[2].split()[0])
        except (OSError, ValueError, IndexError):
            return 0


def allowed_cores(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the cores that this process's control group allows; the cores of the affinity mask if that is unknown.

    The slow cores of an ARM CPU with fast ones do not count.
    """
    try:
        path = (proc / "self/cpuset").read_text(encoding="utf-8").strip().lstrip("/")
    except (OSError, ValueError):
        return len(os.sched_getaffinity(0))
    for file in (
        groups / path / "cpuset.cpus.effective",
        groups / "cpuset" / path / "cpuset.effective_cpus",
    ):
        try:
            parts = [part.split("-") for part in file.read_text(encoding="ascii").strip().split(",")]
            cores = (core for part in parts for core in range(int(part[0]), int(part[-1]) + 1))
            return len(fast_cores(cores))
        except (OSError, ValueError, IndexError):
            continue
    return len(os.sched_getaffinity(0))
