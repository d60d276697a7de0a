"""Names of the folders in a checkpoints directory: `step-<n>`, written and parsed only here."""

from __future__ import annotations

import errno
import re
import secrets
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import UserError

MANIFEST = "manifest.json"
SET_ASIDE = (
    ".old"  # a step whose replacement is not renamed yet, on file systems that cannot exchange two folders
)
_STEP = re.compile(r"step-(0|[1-9][0-9]{0,17})")
_NO_FOLDER = (errno.ENOTDIR, errno.ELOOP, errno.EACCES)


def step_name(step: int) -> str:
    """Return the name of the folder of a step; raise ValueError for a negative one."""
    if step < 0:
        raise ValueError(f"[checkpoint] step: expected 0 or more, got {step}")
    return f"step-{step}"


def step_of(name: str) -> int | None:
    """Return the step whose folder has this name; None for every other name, such as `step-007` and `7`."""
    found = _STEP.fullmatch(name)
    return None if found is None else int(found.group(1))


def step_folder(directory: Path | str, step: int) -> Path:
    """Return the folder of a step's checkpoint once it is committed."""
    return Path(directory) / step_name(step)


def find_step(directory: Path | str, step: int) -> Path:
    """Return the folder of a step: the committed one, or the old one that an interrupted replacement set aside."""
    folder = step_folder(directory, step)
    aside = folder.with_name(folder.name + SET_ASIDE)
    return aside if not folder.exists() and aside.is_dir() else folder


def _entries(directory: Path | str) -> list[tuple[str, bool]]:
    try:
        return _core.list_folder(str(directory))
    except FileNotFoundError:
        return []
    except OSError as error:
        if error.errno not in _NO_FOLDER:
            raise
        raise UserError(
            f"[checkpoint] {directory}: expected a folder that can be read ({error.strerror})"
        ) from None


def scan(directory: Path | str) -> tuple[list[int], dict[int, str]]:
    """Return (steps that have a folder, ascending; other things with the name of a step: "a link" or "a file")."""
    steps, strange = set(), {}
    for name, is_folder in _entries(directory):
        step = step_of(name.removesuffix(SET_ASIDE) if is_folder else name)
        if step is None:
            continue
        if is_folder:
            steps.add(step)
        else:
            strange[step] = "a link" if (Path(directory) / name).is_symlink() else "a file"
    return sorted(steps), strange


def list_steps(directory: Path | str) -> list[int]:
    """Return the steps that have a folder, ascending, without verifying them; an empty list if there are none."""
    return scan(directory)[0]


def recover(directory: Path | str) -> list[str]:
    """Clean up after killed writers: finish replacements and remove temporary folders. Return the removed names.

    Call it once at the start of a run, under the lock of its work directory. A folder that a running writer has locked
    stays.
    """
    try:
        _core.restore_set_aside(str(directory))
        return list(_core.remove_dead_temporaries(str(directory)))
    except FileNotFoundError:
        return []


def new_id() -> str:
    """Return a random id for a temporary folder."""
    return secrets.token_hex(4)
