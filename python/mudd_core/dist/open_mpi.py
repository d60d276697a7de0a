"""The Open MPI that the module _mpi is linked to, and its mpirun."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.packages import build_with_mpi, linked_library


def find_mpirun() -> str:
    """Return the mpirun of the library that _mpi is linked to, else the one on the path. Raise UserError for none."""
    module = importlib.util.find_spec("mudd_core._mpi")
    if module is None or module.origin is None:
        raise _unusable("mudd_core was built without Open MPI")
    library = linked_library(module.origin, "libmpi")
    beside = [] if library is None else [folder / "bin" / "mpirun" for folder in library.resolve().parents]
    on_path = shutil.which("mpirun")
    for candidate in [*beside, *([Path(on_path)] if on_path else [])]:
        if candidate.is_file() and "Open MPI" in version_of(candidate):
            return str(candidate)
    raise _unusable("the mpirun of Open MPI was not found")


def _unusable(what: str) -> UserError:
    return UserError(f"[launch] --ranks: {what}; {build_with_mpi()}; or train in one process without --ranks")


def version_of(mpirun: Path) -> str:
    """Return the output of `mpirun --version`, empty if it cannot be run."""
    try:
        done = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout
