"""The JSON files of a run, read and checked: config.json, run.json, summary.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.members import member
from mudd_core.base.regular_files import read_text
from mudd_core.config import Config, from_dict
from mudd_core.run.records import DATA_FACT


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object in a file; UserError if it cannot be read, FormatError if it is none."""
    try:
        value = json.loads(read_text(path, links=False))
    except OSError as error:
        raise UserError(f"[workdir] {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(str(path), 0, f"not JSON ({error})") from error
    if not isinstance(value, dict):
        raise FormatError(str(path), 0, "expected a JSON object")
    return value


def read_facts(workdir: Path) -> dict[str, Any]:
    """What run.json of a run says: run_id and, where the run has text, the fingerprint of its token cache."""
    file = workdir / "run.json"
    facts = read_object(file)
    member(facts, "run_id", str, file)
    for name, kind in ((DATA_FACT, str), ("vocab_size", int)):
        if facts.get(name) is not None:
            member(facts, name, kind, file)
    return facts


def read_saved_config(workdir: Path) -> Config:
    """The config saved with a run; UserError where the folder holds none."""
    file = workdir / "config.json"
    if not file.is_file():
        raise UserError(f"[workdir] {workdir} holds no run (no config.json); train first, or give --workdir")
    return from_dict(read_object(file))
