"""Names of the folders in a checkpoints directory."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from mudd_core import _core

MANIFEST = "manifest.json"
_STEP = re.compile(r"step-(0|[1-9][0-9]{0,17})")


def step_folder(directory: Path | str, step: int) -> Path:
    """Where the checkpoint of a step stands once it is committed."""
    if step < 0:
        raise ValueError(f"[checkpoint] step: expected 0 or more, got {step}")
    return Path(directory) / f"step-{step}"


def list_steps(directory: Path | str) -> list[int]:
    """The steps that have a folder, ascending; whether they verify is not asked. Empty where nothing is."""
    try:
        entries = _core.list_folder(str(directory))
    except FileNotFoundError:
        return []
    found = (_STEP.fullmatch(name) for name, is_folder in entries if is_folder)
    return sorted(int(match.group(1)) for match in found if match)


def remove_dead_temporaries(directory: Path | str) -> list[str]:
    """Removes `step-<n>.tmp-<id>` folders that killed writers left; gives their names.

    Called once at the start of a run, under the lock of its work directory. A folder that a living writer
    still has locked stays.
    """
    try:
        return list(_core.remove_dead_temporaries(str(directory)))
    except FileNotFoundError:
        return []


def new_id() -> str:
    """An id for a temporary folder: it only has to differ from the ones beside it."""
    return secrets.token_hex(4)
