"""The cores that other processes of this machine take, from the CPU times of /proc/stat."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

_STAT = Path("/proc/stat")
_BUSY = (0, 1, 2, 5, 6, 7)  # columns of a CPU: user, nice, system, irq, softirq, steal
_LEAST_SECONDS = 0.1  # /proc/stat counts in steps of 10 ms
_NOTICED, _SLACK = 0.5, 0.25  # cores


class OtherLoad:
    """A meter of the cores that other processes take, of those that this process may use."""

    def __init__(self, stat: Path = _STAT) -> None:
        """Start the measurement. stat: a file like /proc/stat."""
        self._stat, self._names = stat, {f"cpu{number}" for number in os.sched_getaffinity(0)}
        self._last = self._read()

    @property
    def cores(self) -> int:
        """Number of cores that this process may use."""
        return len(self._names)

    def take(self) -> float:
        """Return the cores that others took since the last call; 0 if unknown, or after less than 0.1 s."""
        now, last = self._read(), self._last
        if now is None or last is None or now[0] - last[0] < _LEAST_SECONDS:
            return 0.0
        self._last = now
        others = (now[1] - last[1]) - (now[2] - last[2])
        return min(float(self.cores), max(0.0, others / (now[0] - last[0])))

    def _read(self) -> tuple[float, float, float] | None:
        """Return (time, busy seconds of the cores, CPU seconds of this process and its children)."""
        try:
            rows = [line.split() for line in self._stat.read_text(encoding="ascii").splitlines()]
            ticks = sum(int(row[1 + i]) for row in rows if row and row[0] in self._names for i in _BUSY)
        except (OSError, ValueError, IndexError):
            return None
        a_second = os.sysconf("SC_CLK_TCK")
        own = sum(os.times()[:4]) + ticks_of_children(os.getpid()) / a_second
        return time.monotonic(), ticks / a_second, own


def ticks_of_children(process: int) -> int:
    """Return the CPU ticks of the running descendants of a process; ended ones are in the times of their parents."""
    ticks = 0
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # a process may end now
            for child in map(int, file.read_text(encoding="ascii").split()):
                # The name before the last bracket may contain blanks.
                row = Path(f"/proc/{child}/stat").read_text(errors="replace").rpartition(")")[2].split()
                ticks += sum(map(int, row[11:15])) + ticks_of_children(child)
    return ticks


def competing_text(others: float, cores: int, threads: int) -> str:
    """Return a clause about other processes that compete with `threads` threads; empty if there are cores for all."""
    if others < _NOTICED or others + threads <= cores + _SLACK:
        return ""
    return f"other processes take {others:.1f} of {cores} core{'s' * (cores > 1)}"
