"""The values of a difference for `diff --json`."""

from __future__ import annotations

from mudd_core.base.types import Json, JsonObject
from mudd_core.run.report.page.records import is_running
from mudd_core.tools.compare.compared import ComparedRun
from mudd_core.tools.diff.evidence import Evidence


def values_of(found: Evidence) -> JsonObject:
    """Return the comparison of the files of two runs."""
    settings: list[Json] = [one.to_dict() for one in found.settings]
    values: list[Json] = [
        {"name": value.name, "a": value.base, "b": value.other} for value in found.logged.values
    ]
    names: list[Json] = list(found.states.names)
    return {
        "equal": found.step is None,
        "equal_through": found.through,
        "first_step": found.step,
        "runs": [_run(run) for run in (found.base, found.other)],
        "settings": settings,
        "logged": {
            "first_step": found.logged.step,
            "values": values,
            "first_lr_step": found.logged.rate_step,
            "first_batch_step": found.logged.batch_step,
        },
        "checkpoints": {
            "equal": list(found.states.equal),
            "first_step": found.states.step,
            "names": names,
        },
    }


def _run(run: ComparedRun) -> JsonObject:
    return {
        "letter": run.letter,
        "path": run.typed,
        "step": run.last_step,
        "in_progress": is_running(run.records.folder),
        "final_hash": run.final_hash or None,
    }
