"""Fast and slow cores of an ARM CPU (big.LITTLE): a run uses the fast ones only.

A parallel region ends with its last thread, so a thread on a slow core delays all others.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterable
from pathlib import Path

from mudd_core.base.surroundings import launcher_number

CPUS = Path("/sys/devices/system/cpu")
# The kernel's capacity of a core is its speed at its highest frequency, 1024 for the fastest of the machine. Clusters
# of one kind of core may have different frequencies (3.4 and 4.0 GHz in one CPU); slow kinds have about half the speed.
_ONE_KIND = 3 / 4
_BINDINGS = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")  # set by users who bind threads themselves


def capacities() -> dict[int, int]:
    """Return the capacity of each core; empty on other CPUs than ARM's, or if the kernel reports none, as in VMs."""
    if platform.machine() != "aarch64":
        return {}
    found = dict[int, int]()
    for file in CPUS.glob("cpu[0-9]*/cpu_capacity"):
        with contextlib.suppress(OSError, ValueError):
            found[int(file.parent.name[3:])] = int(file.read_text(encoding="ascii"))
    return found


def fast_cores(cores: Iterable[int]) -> list[int]:
    """Return the cores of the fastest kind among these, in order; all if the capacity of one is unknown."""
    mine, known = sorted(cores), capacities()
    if not set(mine) <= known.keys():
        return mine
    least = _ONE_KIND * max(known[core] for core in mine)
    return [core for core in mine if known[core] >= least]


def use_fast_cores(asked: int) -> bool:
    """Let this process use only the fast cores of its affinity mask. Return True if it then leaves slow cores idle.

    asked: the requested threads; 0: one per core. More threads than fast cores use all cores, and so do threads that
    OpenMP's variables bind.
    """
    mask = os.sched_getaffinity(0)
    fast, named = fast_cores(mask), launcher_number(os.environ.get("OMP_NUM_THREADS", ""))
    if max(asked or named, 0) > len(fast) or any(name in os.environ for name in _BINDINGS):
        return False
    if len(fast) < len(mask):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, fast)
    return slow_cores_text() != ""


def slow_cores_text() -> str:
    """Return one line about the slow cores that this process may not use; empty if there are none."""
    mask, known = os.sched_getaffinity(0), capacities()
    least = min((known.get(core, 0) for core in mask), default=0)
    slow = [one for core, one in known.items() if core not in mask and one < _ONE_KIND * least]
    if not slow:
        return ""
    return (
        f"[cores] {len(mask)} of {len(known)} cores are used: the others are slower (cpu_capacity {max(slow)}, not "
        f"{least}), and the fast ones would wait for them; train.threads={len(known)} uses all"
    )
