"""The libraries of the extension modules: HDF5 for _h5, and Open MPI with its mpirun for _mpi."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.packages import build_with_mpi, linked_library
from mudd_core.dist.open_mpi import find_mpirun, version_of
from mudd_core.tools.doctor import Finding, Level, from_message

_HDF5 = "mudd_core._h5"
_MPI = "mudd_core._mpi"


def hdf5(place: Path) -> Iterator[Finding]:
    """Yield the loaded HDF5 library, or the reason why it cannot be loaded."""
    try:
        importlib.import_module(_HDF5)
    except ImportError as error:
        yield Finding(
            Level.FAULT,
            f"{_HDF5} cannot be loaded ({error})",
            "unset LD_LIBRARY_PATH LD_PRELOAD, or install HDF5 (Debian: apt install libhdf5-dev) and build again",
        )
        return
    module = importlib.util.find_spec(_HDF5)
    library = None if module is None or module.origin is None else linked_library(module.origin, "libhdf5")
    yield Finding(Level.OK, str(library) if library else f"linked into {_HDF5}")


def mpi(place: Path) -> Iterator[Finding]:
    """Yield findings about MPI for `--ranks` and `mpirun`; none of them prevents training in one process."""
    try:
        own = Path(find_mpirun())
    except UserError as error:
        yield from_message(Level.WARNING, error)
        return
    try:
        importlib.import_module(_MPI)
    except ImportError as error:
        yield Finding(
            Level.WARNING,
            f"{_MPI} cannot be loaded ({error})",
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
            f"{typed} ({version}) comes first in PATH, but the library belongs to {own}",
            f"export PATH={own.parent}:$PATH",
        )
