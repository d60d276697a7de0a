"""Runs with code of the user's that this user started here: their ids and the hashes of their files.

They are kept outside the folders of the runs, in $XDG_STATE_HOME/mudd_core/runs (~/.local/state by default), because
a folder from elsewhere can contain any id and any hash.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from mudd_core import _core
from mudd_core.base.regular_files import read_bytes

_ID = re.compile(r"[0-9a-f]{16}")  # as identity() makes them; no other text becomes the name of a file


def _file(run_id: str) -> Path | None:
    """The file about a run; None for an id that this program has not made, and without a home folder."""
    given = os.environ.get("XDG_STATE_HOME", "")
    try:
        state = Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:  # no home folder
        return None
    return state / "mudd_core" / "runs" / f"{run_id}.json" if _ID.fullmatch(run_id) else None


def known_hashes(run_id: str) -> dict[str, str]:
    """SHA-256 by field of the code that this user ran here in the run of this id; empty for other runs."""
    file = _file(run_id)
    try:
        found = None if file is None else json.loads(read_bytes(file).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return {key: str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def remember(run_id: str, hashes: Mapping[str, str]) -> str:
    """Keep the hashes of the code of a run of this user; returns why that failed, empty if it did not."""
    if not hashes or known_hashes(run_id) == hashes:
        return ""
    if (file := _file(run_id)) is None:
        return "there is no home folder"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        _core.replace_file(str(file), (json.dumps(dict(hashes)) + "\n").encode())
    except OSError as error:
        return f"{file}: {error.strerror}"
    return ""
