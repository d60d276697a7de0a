"""Write, read and check the JSON files of a run: config.json, run.json, summary.json."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mudd_core import _core
from mudd_core.base.errors import FormatError, UserError, write_error
from mudd_core.base.members import build, member
from mudd_core.base.other_folders import require_no_other
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import JsonObject
from mudd_core.config import Config, from_dict, to_dict
from mudd_core.config.check import type_fault
from mudd_core.config.fields import walk
from mudd_core.config.mix import parse_phases
from mudd_core.run.records.events import Summary
from mudd_core.run.records.facts import DATA_FACT
from mudd_core.run.store.log_files import plain
from mudd_core.run.store.original_run import original_run_text, reader_state_of
from mudd_core.run.store.resumed_config import with_own_places
from mudd_core.run.store.run_folder import RunFolder

_EPOCHS = "data_epochs"  # a field of Summary


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically: a crash leaves either the old or the new file. Raise SaveError on failure.

    Non-finite numbers become null.
    """
    try:
        _core.replace_file(str(path), (json.dumps(plain(value), indent=2, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise write_error(path, error) from error


def write_config(folder: RunFolder, config: Config) -> None:
    """Save the config of a run; raise SaveError on failure."""
    write_json(folder.config_file, to_dict(config))


def write_facts(folder: RunFolder, facts: JsonObject) -> None:
    """Save the id and the facts of a run; raise SaveError on failure."""
    write_json(folder.run_file, facts)


def write_summary(folder: RunFolder, summary: Summary) -> None:
    """Save the summary of fit(); raise SaveError on failure."""
    write_json(folder.summary_file, asdict(summary))


def read_object(path: Path) -> JsonObject:
    """Return the JSON object in a file; raise UserError if it cannot be read, FormatError if it is not an object."""
    try:
        return object_in(read_bytes(path, links=False), str(path))
    except OSError as error:
        raise UserError(f"[workdir] {path}: {error.strerror}") from error


def object_in(data: bytes, name: str) -> JsonObject:
    """Return the JSON object in UTF-8 bytes; raise FormatError with the file's name if they are not an object."""
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(name, 0, f"not JSON ({error})") from error
    if not isinstance(value, dict):
        raise FormatError(name, 0, "expected a JSON object")
    return value


def read_facts(folder: RunFolder) -> JsonObject:
    """Return run.json of a run: run_id and, if the run has text, the fingerprint of its token cache."""
    file = folder.run_file
    facts = read_object(file)
    run_id_of(folder, facts)
    for name, kind in ((DATA_FACT, str), ("vocab_size", int)):
        if facts.get(name) is not None:
            member(facts, name, kind, file)
    return facts


def facts_of(folder: RunFolder) -> JsonObject:
    """Return run.json; empty for a run without that file."""
    return read_facts(folder) if folder.run_file.exists() else {}


def run_id_of(folder: RunFolder, facts: JsonObject) -> str:
    """Return the id in the facts of a run; raise FormatError if it is missing."""
    return member(facts, "run_id", str, folder.run_file)


def read_saved_config(folder: RunFolder) -> Config:
    """Return the config of a run, with paths in its folder updated to its current place.

    Errors as in read_config_file.
    """
    return with_own_places(read_config_file(folder), folder)


def read_config_file(folder: RunFolder) -> Config:
    """Return the saved config of a run; raise UserError if there is none, FormatError if it has other types."""
    file = folder.config_file
    if not file.is_file():
        if (theirs := reader_state_of(folder.path)) is not None:
            raise UserError(f"[workdir] {original_run_text(folder.path, theirs)}")
        require_no_other(folder.path, "[workdir]")
        if not os.path.lexists(folder.path):
            raise UserError(f"[workdir] {folder} holds no run: it does not exist; train first, or name a run")
        raise UserError(f"[workdir] {folder} holds no run (no config.json); train first, or give --workdir")
    raw = read_object(file)
    if "model" not in raw:
        require_no_other(folder.path, "[workdir]")
    member(raw, "model", dict, file)
    try:
        config = from_dict(raw)
    except (TypeError, ArithmeticError) as error:
        raise FormatError(str(file), 0, f"not a config ({error})") from error
    if fault := next(filter(None, map(type_fault, walk(config))), None):
        raise FormatError(str(file), 0, f"key {fault}")
    return config


def keep_epochs(folder: RunFolder) -> None:
    """Add the saved config's data.epochs to the summary of an earlier version; raise SaveError on failure."""
    file = folder.summary_file
    if folder.config_file.is_file() and file.exists() and _EPOCHS not in (raw := read_object(file)):
        write_json(file, {**raw, _EPOCHS: _epochs_of(raw, folder)})


def _epochs_of(summary: JsonObject, folder: RunFolder) -> int:
    """Return data.epochs of the run of a summary. Summaries of earlier versions do not have it."""
    found = summary.get(_EPOCHS)
    return found if isinstance(found, int) else read_config_file(folder).data.epochs


def finished_summary(folder: RunFolder, config: Config) -> Summary | None:
    """Return the summary of a finished run; None if, by the current config, steps are left."""
    file = folder.summary_file
    raw = read_object(file) if file.exists() else None
    if not raw or raw.get("stopped"):
        return None
    loss = raw.get("val_loss")
    reached = raw.get("reached") is True and isinstance(loss, float) and loss <= config.eval.target_loss
    data_end = raw.get("data_end") is True and (_mixture_ends(config, raw) or config.train.to_data_end)
    data_end = data_end and config.data.epochs <= _epochs_of(raw, folder)
    since_best, patience = raw.get("since_best"), config.train.patience
    counted = isinstance(since_best, int) and 0 < patience <= since_best
    impatient = counted and raw.get("out_of_patience") is True
    done = reached or data_end or impatient or raw.get("step") == config.train.steps
    return build(Summary, raw, file) if done else None


def _mixture_ends(config: Config, raw: JsonObject) -> bool:
    """Return True if a run that ended with its mixture has no later phase, which could continue it."""
    step = raw.get("step")
    phases = parse_phases(config.data.mix_phases)
    return (
        config.data.mix_until != "steps" and isinstance(step, int) and all(one.step < step for one in phases)
    )
