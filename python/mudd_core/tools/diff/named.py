"""The two runs that a user names, with errors for checkpoints that do not exist and for one run twice."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.storage import is_url
from mudd_core.base.surroundings import typed_program
from mudd_core.run.store.saved_run import run_and_step
from mudd_core.tools.compare.command import read_runs
from mudd_core.tools.compare.compared import ComparedRun
from mudd_core.tools.compare.reading import read_run


def named_runs(names: Sequence[str]) -> tuple[ComparedRun, ComparedRun]:
    """Return runs A and B; raise UserError unless they are two runs, and for a checkpoint that does not exist."""
    if len(names) < 2:
        got, first = (f"{names[0]} alone", names[0]) if names else ("none", "RUN")
        command = shlex.join([*typed_program(), "diff", first, "OTHER_RUN"])
        raise UserError(f"[diff] RUN: expected two runs, checkpoints or records, got {got}; type: {command}")
    if len(names) == 2 and names[0] != names[1] and not any(map(is_url, names)):
        folders = [run_and_step(name)[0] for name in names]
        one, two = (Path(folder).resolve() for folder in folders)
        if one == two:
            raise UserError(
                f"[diff] B: expected another run than A, got {names[1]}: both are of the run {folders[0]}, and `diff` "
                "compares two runs at their common steps"
            )
    base, other = read_runs(names, "diff")
    return base, other


def named_run(letter: str, name: str, *, or_record: bool = False) -> ComparedRun:
    """Return the run that a path names; raise UserError without one. or_record: for a message."""
    if or_record and not is_url(name) and not Path(run_and_step(name)[0]).exists():
        raise UserError(f"[diff] {name}: expected a run or a record, got a path that does not exist")
    return read_run(letter, name, "diff")
