"""Runs programs under mpirun, for tests; without mpirun they are skipped."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
    """Start Python code on that many ranks."""
    python_path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": python_path, **ENVIRONMENT, **variables}
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), sys.executable]
    return subprocess.Popen(
        [*command, "-c", program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=Path(__file__).parent,
    )


def mpirun(ranks: int, program: str, *words: str, **variables: str) -> tuple[int, str, str]:
    """Run Python code on that many ranks: exit code, output, errors."""
    process = mpirun_process(ranks, program, *words, **variables)
    out, errors = process.communicate(timeout=60)
    return process.returncode, out, errors


def window_files() -> list[str]:
    """Files that windows leave behind while their job lives."""
    return [path.name for path in Path("/dev/shm").glob("osc_sm*")]
