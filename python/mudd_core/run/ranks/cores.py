"""CPU cores that this process may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

_OF_THIS_PROCESS = Path("/proc/self/cgroup")

_Read: TypeAlias = Callable[[Path], tuple[str, str]]


def usable_cores(root: Path = Path("/sys/fs/cgroup"), groups: str | None = None) -> int:
    """Return the cores of the affinity mask, or the whole cores of CPU time that the control groups allow; at least 1.

    root, groups: where the control groups are, and the text of /proc/self/cgroup.
    """
    cores = len(os.sched_getaffinity(0))
    if groups is None:
        try:
            groups = os.fsdecode(_OF_THIS_PROCESS.read_bytes())  # a group can have a name of any bytes
        except OSError:
            return cores
    # A quota of 7.65 cores is 7 threads: 8 would be stopped together in every period, and wait for each other.
    allowed = [quota // period for quota, period in _quotas(root, groups)]
    return min([cores, *(max(1, one) for one in allowed)])


def _quotas(root: Path, groups: str) -> Iterator[tuple[int, int]]:
    """Yield (CPU time, period) of each control group of this process that has a quota, parents included."""
    for base, path, read in _hierarchies(root, groups):
        folder = base / path.lstrip("/")
        while folder == base or base in folder.parents:
            try:
                quota, period = read(folder)
            except (OSError, ValueError):  # a container sees the folder of the host's path only as the base
                quota = period = "max"
            if quota.isdecimal() and period.isdecimal() and int(period):
                yield int(quota), int(period)
            folder = folder.parent


def _hierarchies(root: Path, groups: str) -> Iterator[tuple[Path, str, _Read]]:
    """Yield the folder, the path of this process in it and the reader of each hierarchy that can have CPU quotas."""
    found = [line.split(":", 2) for line in groups.splitlines() if line.count(":") > 1]
    for _, controllers, path in found:
        if "cpu" in controllers.split(","):
            yield root / controllers, path, _version_1
            yield root / "cpu", path, _version_1
    yield root, next((path for number, _, path in found if number == "0"), "/"), _version_2


def _version_1(folder: Path) -> tuple[str, str]:
    quota = (folder / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
    return quota, (folder / "cpu.cfs_period_us").read_text(encoding="ascii").strip()


def _version_2(folder: Path) -> tuple[str, str]:
    quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
    return quota, period
