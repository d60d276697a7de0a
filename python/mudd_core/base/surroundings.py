"""What surrounds a run: the environment variables that change it, the machine, and the command that started us."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mudd_core.base.errors import UserError

# Environment that changes what a run does; echoed when it starts.
# MUDD_EMULATE and MUDD_KILL_AT are for tests: docs/running.md, docs/checkpoints.md.
ENVIRONMENT = (
    "MUDD_MAX_ISA", "MUDD_EMULATE", "MUDD_KILL_AT", "OMP_NUM_THREADS", "OMP_PROC_BIND", "OMP_PLACES",
    "GOMP_CPU_AFFINITY", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT",
)  # fmt: skip


# How many processes a launcher has started: SLURM, MPICH and its kin, Open MPI.
PROCESS_COUNTS = ("SLURM_NTASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE")


def require_one_process() -> None:
    """UserError if a launcher has started several processes: each of them would train the same run."""
    for name in PROCESS_COUNTS:
        count = os.environ.get(name, "").lstrip("0")
        if count.isdecimal() and count != "1":
            raise UserError(
                f"[launch] {name}: expected 1 process, got {count}; training runs in one process and uses its cores by "
                f"threads (train.threads). Start one (srun --ntasks=1, mpirun -n 1), or, where this is the only one: "
                f"env -u {name} <the command>"
            )


def environment_text(precision: str) -> str:
    """Machine and settings that decide speed and bits. precision: as train.precision."""
    from mudd_core import _core

    told = " ".join(f"{name}={os.environ[name]}" for name in ENVIRONMENT if name in os.environ)
    text = f"{_core.cpu_name()}, level {_core.isa()}, {_core.num_threads()} threads, {precision}"
    return text + (f", {told}" if told else "")


def program() -> list[str]:
    """The arguments that start this command line again: the console script, `python3 -m mudd_core` or launch.py."""
    started = Path(sys.argv[0]) if sys.argv else Path()
    if started.name == "mudd":
        return ["mudd"]
    as_module = started.name == "__main__.py" and "mudd_core" in (
        started.parent.name,
        started.parent.parent.name,
    )
    return ["python3", "-m", "mudd_core"] if as_module else ["python3", "launch.py"]
