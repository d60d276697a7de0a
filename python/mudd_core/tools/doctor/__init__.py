"""Checks of the machine, and a finding of one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from mudd_core.base.errors import UserError, in_one_line


class Level(StrEnum):
    """How much a finding matters: a fault keeps a training from working, a warning costs speed or a feature."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True)
class Finding:
    """One finding. found: one line. mend: the command or the value that mends it; empty where nothing is to mend."""

    level: Level
    found: str
    mend: str = ""


_PLACE = re.compile(r"^\[[^\]]*\] ")


def from_message(level: Level, message: str | UserError) -> Finding:
    """Return the finding of an error message or a warning of the package: `[place] what was found; what mends it`."""
    found, _, mend = _PLACE.sub("", in_one_line(message)).partition("; ")
    return Finding(level, found, mend)
