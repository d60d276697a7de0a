"""The cores that a process may use, their distribution over ranks, and the correction of a narrow binding."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from mudd_core.base.errors import UserError
from mudd_core.base.launcher_cores import ASKED_BINDING, BY_MPIRUN, bound_by_default, cores_of_launcher
from mudd_core.base.surroundings import launcher_number

_OF_THIS_PROCESS = Path("/proc/self/cgroup")

_Read: TypeAlias = Callable[[Path], tuple[str, str]]


def usable_cores(root: Path = Path("/sys/fs/cgroup"), groups: str | None = None) -> int:
    """Return the cores of the affinity mask, or the whole cores allowed by control groups' quotas; at least 1.

    root, groups: the folder of the control groups, and the text of /proc/self/cgroup.
    """
    cores = len(os.sched_getaffinity(0))
    if groups is None:
        try:
            groups = os.fsdecode(_OF_THIS_PROCESS.read_bytes())  # group names may contain any bytes
        except OSError:
            return cores
    # A quota of 7.65 cores means 7 threads. With 8, all would be throttled in every period, and wait for each other.
    allowed = [quota // period for quota, period in _quotas(root, groups)]
    return min([cores, *(max(1, one) for one in allowed)])


def _quotas(root: Path, groups: str) -> Iterator[tuple[int, int]]:
    """Yield (CPU time, period) of each control group of this process that has a quota, parents included."""
    for base, path, read in _hierarchies(root, groups):
        folder = base / path.lstrip("/")
        while folder == base or base in folder.parents:
            try:
                quota, period = read(folder)
            except (OSError, ValueError):  # in a container, the host's path is visible only as the root
                quota = period = "max"
            if quota.isdecimal() and period.isdecimal() and int(period):
                yield int(quota), int(period)
            folder = folder.parent


def _hierarchies(root: Path, groups: str) -> Iterator[tuple[Path, str, _Read]]:
    """Yield folder, path of this process and reader for each hierarchy that can have CPU quotas."""
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


HostCores = tuple[str, Sequence[int]]  # (host, cores)


def threads_of_rank(mine: HostCores, places: Sequence[HostCores], usable: int) -> int:
    """Return the threads for a rank: the cores of its mask, divided by the ranks of its host that share any of them.

    places: the hosts and cores of all ranks. usable: the cores that the mask allows, or that the quota allows to all
    ranks of the host together.
    """
    host, mask = mine
    rivals = sum(other == host and not set(mask).isdisjoint(theirs) for other, theirs in places)
    cores = len(mask) // max(1, rivals)
    if usable < len(mask):  # there is a quota, which all ranks of the host share
        cores = min(cores, usable // max(1, sum(other == host for other, _ in places)))
    return max(1, cores)


def started_by_mpirun() -> bool:
    """Return True if mpirun started this process."""
    return BY_MPIRUN in os.environ


def widen_binding(
    asked: int, environment: Mapping[str, str] | None = None, parent: Collection[int] | None = None
) -> str:
    """Extend mpirun's default binding to the cores that a rank's threads need. Return a note if that is impossible.

    asked: the requested threads; 0: an equal part of the cores. parent: the cores that the launcher itself may use.
    """
    environment = os.environ if environment is None else environment
    if BY_MPIRUN not in environment:
        return ""
    here = sorted(os.sched_getaffinity(0))
    if not bound_by_default(environment):
        return _too_narrow(asked, len(here), environment[ASKED_BINDING])
    cores = cores_of_launcher() if parent is None else sorted(parent)
    ranks, rank = _rank_of_host(environment)
    named = environment.get("OMP_NUM_THREADS", "")
    wanted = asked or max(0, launcher_number(named)) or max(1, len(cores) // ranks)
    if len(here) < wanted and set(here) < set(cores):
        fits = wanted * ranks <= len(cores)
        os.sched_setaffinity(0, cores[rank * wanted : (rank + 1) * wanted] if fits else cores)
    return ""


def _rank_of_host(environment: Mapping[str, str]) -> tuple[int, int]:
    """Return (ranks of this host, index of this rank among them); raise UserError for impossible values."""
    name = "OMPI_COMM_WORLD_LOCAL_RANK"
    texts = environment[BY_MPIRUN], environment.get(name, "")
    ranks, rank = map(launcher_number, texts)
    if 0 <= rank < ranks:
        return ranks, rank
    raise UserError(
        f"[launch] {BY_MPIRUN}, {name}: expected the numbers that mpirun sets, got '{texts[0]}' and '{texts[1]}'; "
        f"to train in one process: env -u {BY_MPIRUN} -u {name} <the command>"
    )


def _too_narrow(asked: int, cores: int, policy: str) -> str:
    if asked <= cores:
        return ""
    return (
        f"[launch] mpirun --bind-to {policy} leaves a rank {cores} core{'s' * (cores > 1)} for train.threads={asked}; "
        f"start it with --map-by slot:PE={asked} or --bind-to none"
    )
