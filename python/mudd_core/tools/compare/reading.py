"""Reading the runs and checkpoints that a user names, for comparisons."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.storage import is_url
from mudd_core.config.suggest import nearest
from mudd_core.run.report.page.records import read_records
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.run.store.run_folder import CONFIG, RunFolder
from mudd_core.run.store.saved_run import named_run, run_and_step
from mudd_core.tools.compare.compared import ComparedRun, steps_of


def read_run(letter: str, typed: str, command: str = "compare") -> ComparedRun:
    """Read the run that a folder, the folder of a checkpoint, or a URL names; no lock is taken.

    command: for messages. Raise UserError if it names no run, or a checkpoint that the run does not have.
    """
    name, until = run_and_step(typed)
    if not is_url(name) and not (folder := RunFolder.named(name, argument=f"[{command}] RUN")).holds_run:
        raise UserError(f"[{command}] {typed}: expected the folder of a run, got {_without_run(folder)}")
    config, folder = named_run({"--workdir": name}, (), needs=())
    records = read_records(folder, config)
    if until is not None:
        _require_checkpoint(folder, typed, until, command)
        updates, validations = (_up_to(table, until) for table in (records.updates, records.validations))
        summary = records.summary if records.summary.get("step") == until else {}
        records = dataclasses.replace(records, updates=updates, validations=validations, summary=summary)
    return ComparedRun(letter, typed, records, until)


def _up_to(table: Metrics, step: int) -> Metrics:
    """Return the records up to this step."""
    kept = steps_of(table) <= step
    return Metrics({name: column[kept] for name, column in table.items()})


def _require_checkpoint(folder: RunFolder, typed: str, step: int, command: str) -> None:
    """Raise UserError unless the run has the checkpoint that a user names."""
    steps = steps_in(folder)
    if step not in steps:
        has = f"the run has steps {', '.join(f'{step:,}' for step in steps)}" if steps else "the run has none"
        raise UserError(f"[{command}] {typed}: expected a checkpoint that exists, got step {step:,}; {has}")


def steps_in(folder: RunFolder) -> list[int]:
    """Return the steps of the checkpoints of a run, ascending; none if their folder cannot be read."""
    try:
        return Checkpoints(folder).steps()
    except UserError:
        return []


def _without_run(folder: RunFolder) -> str:
    """Return a message that a path is not a run, with the nearest folder next to it."""
    path = folder.path
    if path.is_dir():
        return f"a folder without {CONFIG}"
    if path.exists():
        return "a file"
    above = path.parent
    beside = [one.name for one in above.iterdir() if RunFolder(one).holds_run] if above.is_dir() else []
    hint = nearest(path.name, beside).replace("'", f"'{above}/" if above != Path() else "'", 1)
    return f"a path that does not exist{hint}"
