"""Memory: the limit of the address space, the free memory, huge pages, and the shared memory of ranks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import require_address_space
from mudd_core.base.units import bytes_text
from mudd_core.engine.memory import MIB, available_bytes
from mudd_core.run.build.shared_memory import WINDOW
from mudd_core.tools.doctor import Finding, Level, from_message

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_LEAST, _COMFORTABLE = 160 * MIB, 1024 * MIB  # a run of tiny.py uses 132 MiB at its peak
FOLDER = Path("/dev/shm")
_MEND = "docker run --shm-size=2g, or sudo mount -o remount,size=2g /dev/shm"


def limits(place: Path) -> Iterator[Finding]:
    """Yield the memory that a training may use, and its limits."""
    try:
        require_address_space()
    except UserError as error:
        yield from_message(Level.FAULT, error)
    have, limit = available_bytes()
    if have >= _COMFORTABLE:
        yield Finding(Level.OK, f"{limit} leaves {bytes_text(have)}")
    else:
        yield Finding(
            Level.FAULT if have < _LEAST else Level.WARNING,
            f"{limit} leaves {bytes_text(have)}; tiny.py needs {bytes_text(_LEAST)}",
            "end other programs, or raise the limit (docker run --memory=4g)",
        )
    yield from _huge_pages()


def _huge_pages() -> Iterator[Finding]:
    pages = f"pages of {os.sysconf('SC_PAGE_SIZE') >> 10} KiB"
    try:
        found = re.search(r"\[(\w+)\]", HUGE_PAGES.read_text(encoding="ascii"))
    except OSError:
        yield Finding(Level.OK, f"{pages}; this kernel has no transparent huge pages")
        return
    if found is not None and found[1] == "never":
        yield Finding(
            Level.WARNING,
            "transparent huge pages are off, which costs speed in large matmuls",
            f"echo madvise | sudo tee {HUGE_PAGES}",
        )
    else:
        yield Finding(Level.OK, f"{pages}, transparent huge pages: {found[1] if found else 'unknown'}")


def shared(place: Path) -> Iterator[Finding]:
    """Yield the shared memory for --ranks. Without it ranks send messages, and a single process needs none."""
    if not os.access(FOLDER, os.W_OK):
        yield Finding(Level.WARNING, f"{FOLDER} is missing or cannot be written: --ranks is slower", _MEND)
        return
    free = _core.free_space(str(FOLDER))
    if free < 2 * WINDOW:
        need = bytes_text(2 * WINDOW)
        yield Finding(Level.WARNING, f"{bytes_text(free)} free, --ranks shares weights from {need}", _MEND)
    else:
        yield Finding(Level.OK, f"{bytes_text(free)} free")
