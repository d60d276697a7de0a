"""Check this machine and print what prevents or slows training, each with the remedy.

The command reads no config and trains nothing; it briefly writes at most 32 MiB to the disk. Exit codes: 0 training
would work, 2 a fault prevents it.
"""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from mudd_core.base.errors import UserError, is_full_memory
from mudd_core.base.paths import local
from mudd_core.base.show.json_text import json_text
from mudd_core.base.show.terminal import WIDTH
from mudd_core.base.types import Json, JsonObject
from mudd_core.config.tool_arguments import ToolArguments
from mudd_core.tools.doctor import Finding, Level

# Subject -> module:function of its check. A module that cannot be imported becomes a finding.
CHECKS = {
    "cpu": "processor.level",
    "cores": "processor.cores",
    "openmp": "processor.openmp",
    "memory": "memory.limits",
    "/dev/shm": "memory.shared",
    "disk": "disk.disk",
    "hdf5": "libraries.hdf5",
    "mpi": "libraries.mpi",
    "packages": "packages.packages",  # last, because this check imports NumPy
}
_MARGIN = 20  # columns for the subject and the level


def main(words: Sequence[str]) -> int:
    """Print every finding; return 2 if one of them is a fault, else 0."""
    parser = ToolArguments("doctor", __doc__ or "")
    parser.add_argument(
        "--workdir", default="runs", metavar="DIR", help="check the disk of this folder; default runs"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead (docs/file-formats.md)")
    asked = parser.options(words)
    place = Path(local(asked.workdir, "[doctor] --workdir"))
    counts, found = dict.fromkeys(Level, 0), list[Json]()
    for subject, check in CHECKS.items():
        for finding in checked(check, place):
            counts[finding.level] += 1
            found.append({"subject": subject, **_values(finding)})
            if not asked.json:
                print("\n".join(lines_of(subject, finding)), flush=True)
    faults, warnings = counts[Level.FAULT], counts[Level.WARNING]
    if asked.json:
        print(json_text("doctor", {"works": not faults, "findings": found}))
    else:
        verdict = "training would not work here" if faults else "training would work here"
        print(f"\n{verdict}: {_count(faults, 'fault')}, {_count(warnings, 'warning')}")
    return UserError.exit_code if faults else 0


def checked(check: str, place: Path) -> Iterator[Finding]:
    """Yield the findings of one check; if the check itself fails, yield a fault. check: a value of CHECKS."""
    module, _, function = check.partition(".")
    try:
        yield from getattr(importlib.import_module(f"mudd_core.tools.doctor.{module}"), function)(place)
    except Exception as error:
        short = is_full_memory(error)
        reason = "not enough memory" if short else f"{type(error).__name__}: {error}"
        mend = "raise the limit of this process (ulimit -v unlimited)" if short else "install mudd_core again"
        yield Finding(Level.FAULT, f"the check fails ({reason})", mend)


def _values(finding: Finding) -> JsonObject:
    return {"level": finding.level.value, "found": finding.found, "mend": finding.mend or None}


def lines_of(subject: str, finding: Finding) -> list[str]:
    """Return the lines of a finding. The remedy is on a separate line, which is not wrapped."""
    margin = " " * _MARGIN
    head = f"{subject:<11}{finding.level:<9}"
    lines = textwrap.wrap(
        finding.found,
        WIDTH,
        initial_indent=head,
        subsequent_indent=margin,
        break_on_hyphens=False,
        break_long_words=False,
    )
    label = "to add" if finding.level == Level.OK else "mend"
    return lines + ([f"{margin}{label}: {finding.mend}"] if finding.mend else [])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
