"""Programs under mpirun, for tests; without mpirun the tests are skipped."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from places import HELPERS
from tiny_run import TinyRun

needs_mpi = pytest.mark.skipif(
    shutil.which("mpirun") is None or importlib.util.find_spec("mudd_core._mpi") is None,
    reason="Open MPI is not installed",
)
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMP_NUM_THREADS": "1",
}


def mpirun_process(ranks: int, program: str, *words: str, **variables: str) -> subprocess.Popen[str]:
    """Start Python code on this number of ranks."""
    python_path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": python_path, **ENVIRONMENT, **variables}
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), sys.executable]
    return subprocess.Popen(
        [*command, "-c", program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=HELPERS,
    )


def mpirun(ranks: int, program: str, *words: str, **variables: str) -> tuple[int, str, str]:
    """Run Python code on this number of ranks; return exit code, output and errors."""
    process = mpirun_process(ranks, program, *words, **variables)
    out, errors = process.communicate(timeout=60)
    return process.returncode, out, errors


def window_files() -> list[str]:
    """Return the files of shared-memory windows that exist during a job."""
    return [path.name for path in Path("/dev/shm").glob("osc_sm*")]


def ranks_of(run: TinyRun) -> dict[int, int]:
    """Return the process id of each rank of a running job."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().split(b"\0")
            variables = dict(
                one.split(b"=", 1) for one in (entry / "environ").read_bytes().split(b"\0") if b"=" in one
            )
        except (OSError, NotADirectoryError):
            continue
        started_here = f"--workdir={run.workdir}".encode() in line and b"OMPI_COMM_WORLD_RANK" in variables
        if started_here and not line[0].endswith(b"mpirun"):
            found[int(variables[b"OMPI_COMM_WORLD_RANK"])] = int(entry.name)
    return found
