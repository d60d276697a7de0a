"""The HDF5 library of the module _h5."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from mudd_core.base.packages import linked_library
from mudd_core.tools.doctor.finding import Finding, Level

_MODULE = "mudd_core._h5"


def findings(place: Path) -> Iterator[Finding]:
    """Yield the library that is loaded, or why it cannot be."""
    try:
        importlib.import_module(_MODULE)
    except ImportError as error:
        yield Finding(
            Level.FAULT,
            f"{_MODULE} cannot be loaded ({error})",
            "unset LD_LIBRARY_PATH LD_PRELOAD, or install HDF5 (Debian: apt install libhdf5-dev) and build again",
        )
        return
    module = importlib.util.find_spec(_MODULE)
    library = None if module is None or module.origin is None else linked_library(module.origin, "libhdf5")
    yield Finding(Level.OK, str(library) if library else f"linked into {_MODULE}")
