"""The cores of mpirun itself, which binds a rank by default to fewer of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

# mpirun binds by default, to one core a rank for one or two ranks; then this is not set. A binding asked for sets it.
ASKED_BINDING = "OMPI_MCA_hwloc_base_binding_policy"
BY_MPIRUN = "OMPI_COMM_WORLD_LOCAL_SIZE"


def bound_by_default(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether mpirun started this process and chose its cores without being asked to."""
    return BY_MPIRUN in environment and environment.get(ASKED_BINDING, "") in ("", "none")


def cores_of_launcher() -> list[int]:
    """The cores that the parent process may use, in order; empty if the system does not say."""
    try:
        lines = Path(f"/proc/{os.getppid()}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    text = next((line.split(":")[1].strip() for line in lines if line.startswith("Cpus_allowed_list:")), "")
    cores: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        cores.update(range(int(low), int(high or low) + 1))
    return sorted(cores)


@contextlib.contextmanager
def unbound() -> Iterator[None]:
    """Let the process use its launcher's cores for a moment, where mpirun has bound it by default."""
    cores = cores_of_launcher() if bound_by_default() else []
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cores)
        yield
    finally:
        os.sched_setaffinity(0, before)
