"""The cores that mpirun may use. By default mpirun binds each rank to fewer cores."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

# With one or two ranks, mpirun binds each rank to one core by default. Open MPI sets this variable only if the user
# requested a binding.
ASKED_BINDING = "OMPI_MCA_hwloc_base_binding_policy"
BY_MPIRUN = "OMPI_COMM_WORLD_LOCAL_SIZE"


def bound_by_default(environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if mpirun started this process and bound it to cores although the user requested no binding."""
    return BY_MPIRUN in environment and environment.get(ASKED_BINDING, "") in ("", "none")


def cores_of_launcher() -> list[int]:
    """Return the cores that the parent process may use, in order; empty if the system does not report them."""
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
    """Let a process that mpirun bound by default use all cores of its launcher inside the `with` block."""
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
