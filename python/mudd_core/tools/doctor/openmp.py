"""The copies of an OpenMP runtime in one process: each one has threads of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mudd_core import _core
from mudd_core.tools.doctor.finding import Finding, Level

MAPS = Path("/proc/self/maps")
_RUNTIME = re.compile(r"/lib(gomp|iomp5|omp)[-.\w]*\.so[.\d]*$")


def findings(place: Path) -> Iterator[Finding]:
    """Yield the copies that this process has loaded."""
    try:
        lines = MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        yield Finding(Level.WARNING, f"{MAPS} cannot be read ({error.strerror})", "mount /proc")
        return
    paths = {line.split(maxsplit=5)[-1] for line in lines}
    copies = sorted(path for path in paths if _RUNTIME.search(path))
    named = ", ".join(copies) or "none"
    if len(copies) > 1:
        yield Finding(
            Level.WARNING,
            f"{len(copies)} copies of OpenMP in one process, whose threads compete: {named}",
            "unset LD_PRELOAD; in Python, import mudd_core before packages that bring a copy",
        )
    else:
        yield Finding(Level.OK, f"{named}, {_core.num_threads()} threads")
