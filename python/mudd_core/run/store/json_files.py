"""The JSON files of a run, read and checked: config.json, run.json, summary.json."""

from __future__ import annotations

import json
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.members import build, member
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import JsonObject
from mudd_core.config import Config, from_dict
from mudd_core.config.check import type_fault
from mudd_core.config.fields import walk
from mudd_core.run.records.events import Summary
from mudd_core.run.records.facts import DATA_FACT
from mudd_core.run.store.original_run import original_run_text, reader_state_of


def read_object(path: Path) -> JsonObject:
    """A JSON object in a file; UserError if it cannot be read, FormatError if it is none."""
    try:
        return object_in(read_bytes(path, links=False), str(path))
    except OSError as error:
        raise UserError(f"[workdir] {path}: {error.strerror}") from error


def object_in(data: bytes, name: str) -> JsonObject:
    """A JSON object in UTF-8; FormatError with the name of the file if it is none."""
    try:
        value = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(name, 0, f"not JSON ({error})") from error
    if not isinstance(value, dict):
        raise FormatError(name, 0, "expected a JSON object")
    return value


def read_facts(workdir: Path) -> JsonObject:
    """What run.json of a run says: run_id and, where the run has text, the fingerprint of its token cache."""
    file = workdir / "run.json"
    facts = read_object(file)
    member(facts, "run_id", str, file)
    for name, kind in ((DATA_FACT, str), ("vocab_size", int)):
        if facts.get(name) is not None:
            member(facts, name, kind, file)
    return facts


def read_saved_config(workdir: Path) -> Config:
    """The config saved with a run; UserError where the folder holds none, FormatError for one of other types."""
    file = workdir / "config.json"
    if not file.is_file():
        if (theirs := reader_state_of(workdir)) is not None:
            raise UserError(f"[workdir] {original_run_text(workdir, theirs)}")
        raise UserError(f"[workdir] {workdir} holds no run (no config.json); train first, or give --workdir")
    raw = read_object(file)
    member(raw, "model", dict, file)
    try:
        config = from_dict(raw)
    except (TypeError, ArithmeticError) as error:
        raise FormatError(str(file), 0, f"not a config ({error})") from error
    if fault := next(filter(None, map(type_fault, walk(config))), None):
        raise FormatError(str(file), 0, f"member {fault}")
    return config


def finished_summary(file: Path, config: Config) -> Summary | None:
    """The summary of a finished run; None while there is something left to do, by the config as it is now."""
    raw = read_object(file) if file.exists() else None
    if not raw or raw.get("stopped"):
        return None
    loss = raw.get("val_loss")
    reached = raw.get("reached") is True and isinstance(loss, float) and loss <= config.eval.target_loss
    data_end = raw.get("data_end") is True and config.train.to_data_end
    done = reached or data_end or raw.get("step") == config.train.steps
    return build(Summary, raw, file) if done else None
