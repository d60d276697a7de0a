"""Shared memory, /dev/shm: ranks of one machine exchange gradients through it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mudd_core import _core
from mudd_core.base.units import bytes_text
from mudd_core.run.build.shared_memory import WINDOW
from mudd_core.tools.doctor.finding import Finding, Level

FOLDER = Path("/dev/shm")
_MEND = "docker run --shm-size=2g, or sudo mount -o remount,size=2g /dev/shm"


def findings(place: Path) -> Iterator[Finding]:
    """Yield the room that --ranks has; without it ranks exchange messages, and one process needs none."""
    if not os.access(FOLDER, os.W_OK):
        yield Finding(Level.WARNING, f"{FOLDER} is missing or cannot be written: --ranks is slower", _MEND)
        return
    free = _core.free_space(str(FOLDER))
    if free < 2 * WINDOW:
        need = bytes_text(2 * WINDOW)
        yield Finding(Level.WARNING, f"{bytes_text(free)} free, --ranks shares weights from {need}", _MEND)
    else:
        yield Finding(Level.OK, f"{bytes_text(free)} free")
