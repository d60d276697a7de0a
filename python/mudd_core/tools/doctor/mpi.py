"""Open MPI: the library of the module _mpi, its mpirun, and the mpirun that comes first in PATH."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.packages import build_with_mpi
from mudd_core.dist.open_mpi import find_mpirun, version_of
from mudd_core.tools.doctor.finding import Finding, Level, from_message

_MODULE = "mudd_core._mpi"


def findings(place: Path) -> Iterator[Finding]:
    """Yield what `--ranks` and a typed `mpirun` would start; nothing here keeps one process from training."""
    try:
        own = Path(find_mpirun())
    except UserError as error:
        yield from_message(Level.WARNING, error)
        return
    try:
        importlib.import_module(_MODULE)
    except ImportError as error:
        yield Finding(
            Level.WARNING,
            f"{_MODULE} cannot be loaded ({error})",
            f"unset LD_LIBRARY_PATH LD_PRELOAD, or {build_with_mpi()}",
        )
    yield Finding(Level.OK, f"{own}, {version_of(own).partition(chr(10))[0]}")
    typed = shutil.which("mpirun")
    if typed is None:
        yield Finding(
            Level.WARNING, "no mpirun in PATH (--ranks needs none)", f"export PATH=$PATH:{own.parent}"
        )
    elif Path(typed).resolve() != own.resolve():
        version = version_of(Path(typed)).strip().partition("\n")[0] or "no version"
        yield Finding(
            Level.WARNING,
            f"{typed} ({version}) comes first in PATH, but the library is that of {own}",
            f"export PATH={own.parent}:$PATH",
        )
