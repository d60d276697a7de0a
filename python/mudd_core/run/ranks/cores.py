"""CPU cores that this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path


def usable_cores(root: Path = Path("/sys/fs/cgroup"), groups: str | None = None) -> int:
    """Return the cores of the affinity mask, or the CPU time that the control groups (version 2) allow, in cores.

    root, groups: where the control groups are, and the text of /proc/self/cgroup.
    """
    cores = len(os.sched_getaffinity(0))
    if groups is None:
        try:
            groups = Path("/proc/self/cgroup").read_text(encoding="ascii")
        except OSError:
            return cores
    own = next((line[3:] for line in groups.splitlines() if line.startswith("0::")), "/")
    folder = root / own.lstrip("/")
    while folder == root or root in folder.parents:
        try:
            quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        except (OSError, ValueError):
            quota = period = "max"
        if quota.isdecimal() and period.isdecimal() and int(period):
            cores = min(cores, max(1, math.ceil(int(quota) / int(period))))
        folder = folder.parent
    return cores
