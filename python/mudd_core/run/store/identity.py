"""The config and the identity of a run in its folder: a start adopts, checks and writes them on rank 0."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core import _core
from mudd_core.base.errors import UserError, write_error
from mudd_core.base.members import object_in
from mudd_core.base.paths import IMPORTED
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import Json, JsonObject
from mudd_core.config import Config, Difference, with_bound_values
from mudd_core.run.records.events import Summary
from mudd_core.run.records.facts import SEAL_FACT, bits_back_at, change_of_bits
from mudd_core.run.store import own_code
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.config_source import MEMBER, ConfigSource
from mudd_core.run.store.json_files import (
    facts_of,
    finished_summary,
    keep_epochs,
    read_config_file,
    read_saved_config,
    run_id_of,
    write_config,
    write_facts,
)
from mudd_core.run.store.resumed_config import bound_facts, moved_along, resumed_config, with_earlier_values
from mudd_core.run.store.run_folder import RunFolder

if TYPE_CHECKING:
    from mudd_core.data.pipelines import Prepared


def seal_fact(data: Prepared) -> JsonObject:
    """Return the seal of the token cache as a fact of a run; empty if a stream reads the text."""
    from mudd_core.data.pipelines.mixture.data import MixedData
    from mudd_core.data.streaming.data import StreamData

    streamed = any(
        isinstance(one, StreamData) for one in (data.of if isinstance(data, MixedData) else [data])
    )
    return {} if streamed else {SEAL_FACT: data.seal}


def identity(
    folder: RunFolder, saved: Mapping[str, Json], facts: Mapping[str, Json], source: ConfigSource | None
) -> JsonObject:
    """Return the new run.json. Raise UserError if a saved fact differs.

    saved: run.json of an earlier start; empty for a new run. facts: the facts of this start; unknown values are None.
    """
    for name, value in facts.items():
        if name in saved and saved[name] != value:
            raise UserError(
                f"[resume] {folder} was made with another {name}: saved {saved.get(name)!r}, "
                f"now {value!r}. Bring the old one back, or give another --workdir."
            )
    fresh = {"run_id": secrets.token_hex(8), "started": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    known = {name: value for name, value in facts.items() if value is not None}
    # An imported run gets its facts at the first start.
    return {**(saved or fresh), **known, **({} if source is None else {MEMBER: source.to_dict()})}


def config_to_run(
    folder: RunFolder, asked: Config, done: Callable[[], int]
) -> tuple[Config, list[Difference]]:
    """Return the requested config in a new folder; else the saved config with requested free fields, and the changes.

    done: returns the number of updates so far. Raise UserError as RunStore.adopt does.
    """
    if not folder.holds_run:
        return with_bound_values(asked), []
    facts = facts_of(folder)
    asked = own_code.as_saved(asked, folder, facts)
    asked = moved_along(asked, read_config_file(folder), folder)
    saved = read_saved_config(folder)
    return resumed_config(saved, with_earlier_values(asked, saved, facts), done())


def write_identity(
    folder: RunFolder, config: Config, facts: Mapping[str, Json], source: ConfigSource | None
) -> str:
    """Write config, identity and copies of the user's code, recover checkpoints, and return the run's id.

    facts: as in identity().
    """
    saved, facts = facts_of(folder), {**facts, **own_code.facts_of(config)}
    if not saved:
        facts |= bound_facts(config)
    run = identity(folder, saved, facts, source)
    run_id = run_id_of(folder, run)
    keep_epochs(folder)  # needed because config.json may get new fields later
    # Write the config first: if the run is killed before the next line, the config identifies the folder as a run.
    write_config(folder, config)
    write_files(folder, own_code.copies_of(config))
    _replace_facts(folder, saved, run)
    if obstacle := own_code.remember_code(run_id, config):
        print(f"note: other commands on this run need the option --trust-code: {obstacle}", file=sys.stderr)
    Checkpoints(folder).recover()
    return run_id


def write_files(folder: RunFolder, files: Mapping[str, bytes]) -> None:
    """Write files that commands on the run will read; raise SaveError if that fails."""
    for name, data in files.items():
        file = folder.path / name
        try:
            if not file.is_file() or read_bytes(file) != data:
                _core.replace_file(str(file), data)
        except OSError as error:
            raise write_error(file, error) from error


def write_bits(folder: RunFolder, facts: Mapping[str, Json], step: int) -> str:
    """Write the facts that determine the bits after this step to run.json. Return a note if they change, else ''."""
    saved = facts_of(folder)
    now, note = change_of_bits(saved, facts, step)
    _replace_facts(folder, saved, now)
    return note


def write_bits_back_at(folder: RunFolder, step: int) -> None:
    """Write run.json for a run that goes back to this step."""
    saved = facts_of(folder)
    _replace_facts(folder, saved, bits_back_at(saved, step))


def _replace_facts(folder: RunFolder, saved: JsonObject, now: JsonObject) -> None:
    if now != saved:
        write_facts(folder, now)


def unchanged_summary(folder: RunFolder, config: Config, checkpoints: Checkpoints) -> Summary | None:
    """Return the summary of a finished run; None if work is left, or if the run's weights were removed."""
    found, train = finished_summary(folder, config), config.train
    if found is None or not train.save or checkpoints.steps():
        return found
    if train.save_policy == "best" and found.best_step is None:  # no validation had a finite loss
        return found
    print(
        f"note: {folder} was finished, but its checkpoints are missing, so it trains again", file=sys.stderr
    )
    return None


TRAINED_ON = "that the model was trained on"  # data.recipe_text of an import whose settings name no text
_OF_IMPORT = {"run_id", "started"}  # keys of run.json in an import; the first start of a training adds facts


def is_unfinished_import(run: RunFolder) -> bool:
    """Return True if an import has started in a folder that has no checkpoint.

    Imports of older versions wrote directly into the folder, so a kill could leave it in this state.
    """
    if not run.holds_run or Checkpoints(run).steps():
        return False
    if (run.path / IMPORTED).is_dir():
        return True
    if run.has_identity:
        return set(object_in(run.run_file)) == _OF_IMPORT
    data = object_in(run.config_file).get("data")
    return isinstance(data, dict) and data.get("recipe_text") == TRAINED_ON


def imported_weights(run: RunFolder) -> Path | None:
    """Return the checkpoint with the weights that a run was imported with; None for any other run.

    It is the run itself, with its newest checkpoint, if the first one was removed.
    """
    if (folder := run.step_folder(0)).is_dir():
        return folder
    return run.path if (run.path / IMPORTED).is_dir() else None


def require_weights(run: RunFolder) -> None:
    """Raise UserError for the folder of a killed import, in which a start would train random weights."""
    if is_unfinished_import(run):
        raise UserError(
            f"[workdir] {run} belongs to an interrupted import: it has no checkpoint with the "
            "imported weights. Repeat that import or tune command, or type another --workdir"
        )
