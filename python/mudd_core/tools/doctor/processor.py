"""The CPU and its instruction set level."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import require_levels
from mudd_core.run.build.start_warnings import of_level
from mudd_core.tools.doctor.finding import Finding, Level, from_message


def findings(place: Path) -> Iterator[Finding]:
    """Yield the level that is used, and why it is not the highest one of the CPU."""
    try:
        require_levels()
    except UserError as error:
        yield from_message(Level.FAULT, error)
        return
    detected, used = _core.detected_isa(), _core.isa()
    yield Finding(Level.OK, f"{_core.cpu_name()}, level {used} of {', '.join(_core.isa_levels())}")
    if used != detected:
        yield Finding(
            Level.WARNING,
            f"MUDD_MAX_ISA holds the level at {used}, the CPU has {detected}",
            "unset MUDD_MAX_ISA",
        )
    for warning in of_level(detected, platform.machine()):
        yield Finding(Level.WARNING, from_message(Level.WARNING, warning).found, "train on a CPU with AVX2")
