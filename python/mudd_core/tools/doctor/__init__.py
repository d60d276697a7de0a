"""Checks of the machine, and the findings that a check yields."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from mudd_core.base.errors import UserError, in_one_line


class Level(StrEnum):
    """The severity of a finding: a fault prevents training, a warning costs speed or a feature."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True)
class Finding:
    """A finding.

    found: one line about it. mend: the command or the value that fixes it; empty if nothing needs a fix.
    """

    level: Level
    found: str
    mend: str = ""


_PLACE = re.compile(r"^\[[^\]]*\] ")


def from_message(level: Level, message: str | UserError) -> Finding:
    """Return the finding for an error or a warning of the package, `[place] problem; remedy`."""
    found, _, mend = _PLACE.sub("", in_one_line(message)).partition("; ")
    return Finding(level, found, mend)
