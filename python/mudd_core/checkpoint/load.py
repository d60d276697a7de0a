"""Read checkpoints: everything is verified before a value is used."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import Array, JsonObject
from mudd_core.checkpoint.manifest import Manifest
from mudd_core.checkpoint.ranks import on_each, on_first
from mudd_core.checkpoint.read import read_parts, read_tensors
from mudd_core.checkpoint.state_part import StatePart
from mudd_core.checkpoint.steps import find_step, scan, step_folder
from mudd_core.checkpoint.stored import StoredTensor, stored_tensors
from mudd_core.checkpoint.verify import verify_step
from mudd_core.dist import Comm


@dataclass(frozen=True)
class PassedOver:
    """A newer step that failed verification, with its file and the reason."""

    step: int
    file: str
    reason: str

    @property
    def tensor(self) -> str:
        """The tensor that the reason names, or an empty string."""
        found = re.match(r"tensor '(.*?)'(?:,|$)", self.reason)
        return found.group(1) if found else ""

    def __str__(self) -> str:
        return f"step {self.step} passed over: {self.file}: {self.reason}"


@dataclass(frozen=True)
class Checkpoint:
    """A verified step. tensors: the whole tensors that were requested by name, in addition to the filled parts.

    stored: all tensors, to be read one at a time. passed_over: the newer steps that automatic resume could not use.
    """

    step: int
    path: Path
    tensors: dict[str, Array]
    state: JsonObject
    config_hash: str
    run_id: str
    passed_over: tuple[PassedOver, ...] = ()
    stored: dict[str, StoredTensor] = field(default_factory=dict)


def load_newest(
    checkpoints_dir: Path | str,
    *,
    run_id: str | None = None,
    into: Sequence[StatePart] | None = None,
    only: Callable[[str], bool] | None = None,
    up_to: int | None = None,
    comm: Comm | None = None,
) -> Checkpoint | None:
    """Return the newest step that verifies; `passed_over` reports each newer one that does not.

    run_id: steps of another run are passed over. into: parts to fill (C-contiguous, writable, same dtype and shape).
    They are written only after the whole step has verified, and only their bytes are read, however many ranks wrote the
    step. only: selects the whole tensors to return, by name; the default is all if `into` is None, else none. up_to:
    the last step to consider. comm: all ranks call this; rank 0 chooses the step, and all ranks get the same one.

    Return None if there is no step at all. Raise FormatError if there are steps but none verifies, and UserError if one
    has a newer format (a run must not overwrite it).
    """
    passed: list[PassedOver] = []
    steps, strange = _scanned(checkpoints_dir, comm)
    for step in sorted({*steps, *strange}, reverse=True):
        if up_to is not None and step > up_to:
            continue
        if step in strange:
            where = str(step_folder(checkpoints_dir, step))
            passed.append(PassedOver(step, where, f"it is {strange[step]}, expected a folder"))
        if step not in steps:
            continue
        folder, number = _found(checkpoints_dir, step, comm)
        try:
            manifest = verify_step(folder, run_id=run_id, comm=comm)
            return _read(folder, manifest, into, only, tuple(passed), comm)
        except FormatError as error:
            passed.append(PassedOver(step, error.file, error.reason))
        except OSError as error:
            passed.append(PassedOver(step, str(error.filename or folder), error.strerror or str(error)))
        if _found(checkpoints_dir, step, comm) != (folder, number) or not number:
            # Another process has just deleted or replaced the step.
            return load_newest(checkpoints_dir, run_id=run_id, into=into, only=only, up_to=up_to, comm=comm)
    if passed:
        reasons = "; ".join(map(str, passed))
        way_out = "restore it from a copy, or move it away to start from step 0"
        raise FormatError(str(checkpoints_dir), 0, f"no checkpoint verifies ({way_out}): {reasons}")
    return None


def load_step(
    checkpoints_dir: Path | str,
    step: int,
    *,
    run_id: str | None = None,
    into: Sequence[StatePart] | None = None,
    only: Callable[[str], bool] | None = None,
    comm: Comm | None = None,
) -> Checkpoint:
    """Return exactly this step, never another.

    Raise UserError if it does not exist, FormatError if it does not verify. The other arguments are as in load_newest.
    """
    steps, strange = _scanned(checkpoints_dir, comm)
    if step not in steps:
        if step in strange:
            where = step_folder(checkpoints_dir, step)
            raise UserError(f"{where} is {strange[step]}, expected a folder; put a copy of the step there")
        known = ", ".join(map(str, steps)) or "none"
        raise UserError(f"{checkpoints_dir} has no checkpoint of step {step}; steps there: {known}")
    folder, _ = _found(checkpoints_dir, step, comm)
    try:
        return _read(folder, verify_step(folder, run_id=run_id, comm=comm), into, only, (), comm)
    except OSError as error:
        raise FormatError(str(error.filename or folder), 0, error.strerror or str(error)) from error


def _inode(folder: Path) -> int:
    try:
        return folder.stat().st_ino
    except OSError:
        return 0


def _scanned(directory: Path | str, comm: Comm | None) -> tuple[list[int], dict[int, str]]:
    """Return rank 0's scan of the checkpoints directory."""
    steps, strange = on_first(comm, lambda: _as_lists(directory))
    return steps, dict(strange)


def _as_lists(directory: Path | str) -> tuple[list[int], list[tuple[int, str]]]:
    steps, strange = scan(directory)
    return steps, list(strange.items())


def _found(directory: Path | str, step: int, comm: Comm | None) -> tuple[Path, int]:
    """Return the folder of a step as rank 0 finds it, and its inode number."""

    def look() -> tuple[str, int]:
        folder = find_step(directory, step)
        return folder.name, _inode(folder)

    name, number = on_first(comm, look)
    return Path(directory) / name, number


def _read(
    folder: Path,
    manifest: Manifest,
    into: Sequence[StatePart] | None,
    only: Callable[[str], bool] | None,
    passed: tuple[PassedOver, ...],
    comm: Comm | None,
) -> Checkpoint:
    if into is not None:
        read_parts(folder, manifest, into, comm)
    wanted = only or (lambda name: into is None)
    tensors = on_each(comm, lambda: read_tensors(folder, manifest, wanted))
    return Checkpoint(
        manifest.step,
        folder,
        tensors,
        manifest.state,
        manifest.config_hash,
        manifest.run_id,
        passed,
        stored_tensors(folder, manifest),
    )
