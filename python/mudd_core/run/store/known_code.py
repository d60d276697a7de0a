"""The ids of the runs that this user started on this machine, and the hashes of their code.

They are stored outside the folders of the runs, in $XDG_STATE_HOME/mudd_core/runs (~/.local/state by default). A folder
from elsewhere can contain any id and hash.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from mudd_core import _core
from mudd_core.base.regular_files import read_bytes

_ID = re.compile(r"[0-9a-f]{16}")  # the form of identity(); other strings are never used as names of files


def _file(run_id: str) -> Path | None:
    """Return the file about a run; None for an id in another form, or without a home folder."""
    given = os.environ.get("XDG_STATE_HOME", "")
    try:
        state = Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:  # there is no home folder
        return None
    return state / "mudd_core" / "runs" / f"{run_id}.json" if _ID.fullmatch(run_id) else None


def known_hashes(run_id: str) -> dict[str, str]:
    """Return the SHA-256 by field of the code that this user ran on this machine in a run; empty for other runs."""
    file = _file(run_id)
    try:
        found = None if file is None else json.loads(read_bytes(file).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return {key: str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def remember(run_id: str, hashes: Mapping[str, str]) -> str:
    """Store the hashes of a run's code for this user; return the error message, or an empty string."""
    if not hashes or known_hashes(run_id) == hashes:
        return ""
    if (file := _file(run_id)) is None:
        return "there is no home folder for the hash of your code; set HOME"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        _core.replace_file(str(file), (json.dumps(dict(hashes)) + "\n").encode())
    except OSError as error:
        return f"{file}: {error.strerror}"
    return ""
