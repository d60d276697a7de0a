"""The cores of a rank: its share of those that the ranks of a machine have, and a binding that is too narrow."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

# mpirun binds by default, to one core a rank for one or two ranks; then this is not set. A binding asked for sets it.
ASKED_BINDING = "OMPI_MCA_hwloc_base_binding_policy"
_BY_MPIRUN = "OMPI_COMM_WORLD_LOCAL_SIZE"

Place = tuple[str, Sequence[int]]  # host and cores


def share(mine: Place, places: Sequence[Place], usable: int) -> int:
    """Threads for a rank at `mine`: the cores of its mask over the ranks of its host that have some of them too.

    places: of all ranks. usable: cores that the mask, or the quota of all ranks of the host together, allow.
    """
    host, mask = mine
    rivals = sum(other == host and not set(mask).isdisjoint(theirs) for other, theirs in places)
    cores = len(mask) // max(1, rivals)
    if usable < len(mask):  # a quota, which all ranks of the host share
        cores = min(cores, usable // max(1, sum(other == host for other, _ in places)))
    return max(1, cores)


def started_by_mpirun() -> bool:
    """Whether mpirun started this process, alone or with others."""
    return _BY_MPIRUN in os.environ


def widen(
    asked: int, environment: Mapping[str, str] | None = None, parent: Collection[int] | None = None
) -> str:
    """Give a rank that mpirun bound by default the cores that its threads want; a note if that is not possible.

    asked: threads; 0 = the rank's share. parent: the cores that the launcher itself may use.
    """
    environment = os.environ if environment is None else environment
    if _BY_MPIRUN not in environment:
        return ""
    here = sorted(os.sched_getaffinity(0))
    if environment.get(ASKED_BINDING, "") not in ("", "none"):
        return _too_narrow(asked, len(here), environment[ASKED_BINDING])
    cores = sorted(_of_process(os.getppid()) if parent is None else parent)
    ranks, rank = int(environment[_BY_MPIRUN]), int(environment["OMPI_COMM_WORLD_LOCAL_RANK"])
    named = environment.get("OMP_NUM_THREADS", "")
    wanted = asked or (int(named) if named.isdecimal() else 0) or max(1, len(cores) // ranks)
    if len(here) < wanted and set(here) < set(cores):
        fits = wanted * ranks <= len(cores)
        os.sched_setaffinity(0, cores[rank * wanted : (rank + 1) * wanted] if fits else cores)
    return ""


def _too_narrow(asked: int, cores: int, policy: str) -> str:
    if asked <= cores:
        return ""
    return (
        f"[launch] mpirun --bind-to {policy} leaves a rank {cores} core{'s' * (cores > 1)} for train.threads={asked}; "
        f"start it with --map-by slot:PE={asked} or --bind-to none"
    )


def _of_process(number: int) -> set[int]:
    """The cores that a process may use; empty if nobody tells."""
    try:
        lines = Path(f"/proc/{number}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return set()
    text = next((line.split(":")[1].strip() for line in lines if line.startswith("Cpus_allowed_list:")), "")
    cores: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        cores.update(range(int(low), int(high or low) + 1))
    return cores
