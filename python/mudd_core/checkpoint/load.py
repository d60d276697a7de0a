"""Reading checkpoints: everything is verified before a value is used."""

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
    """A newer step that did not verify: which, and why."""

    step: int
    file: str
    reason: str

    @property
    def tensor(self) -> str:
        """The tensor the reason names, or an empty string."""
        found = re.match(r"tensor '(.*?)'(?:,|$)", self.reason)
        return found.group(1) if found else ""

    def __str__(self) -> str:
        return f"step {self.step} passed over: {self.file}: {self.reason}"


@dataclass(frozen=True)
class Checkpoint:
    """A verified step. tensors: the whole ones that were asked for by name, beside the parts that were filled.

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
    """The newest step that verifies, with each newer one that does not reported in `passed_over`.

    run_id: steps of another run are passed over. into: parts to fill (C-contiguous, writable, same dtype and shape),
    which are written only after the whole step has verified; whatever world wrote it, its bytes alone are read.
    only: which whole tensors to give, by name; all where there is neither `into` nor this. up_to: no step after this
    one. comm: all ranks call this; rank 0 chooses the step, all get the same one. None where there is no step at all;
    FormatError where there are some and none verifies; UserError where one is of a newer format (it must not be
    trained over).
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
            # A run that lives has just deleted or replaced it.
            return load_newest(checkpoints_dir, run_id=run_id, into=into, only=only, up_to=up_to, comm=comm)
    if passed:
        reasons = "; ".join(map(str, passed))
        way_out = "restore it from a copy, or move it away to start anew"
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
    """Exactly this step, never another.

    UserError where it does not exist, FormatError where it does not verify; the rest as load_newest.
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
    """What rank 0 finds in the checkpoints directory (see scan)."""
    steps, strange = on_first(comm, lambda: _as_lists(directory))
    return steps, dict(strange)


def _as_lists(directory: Path | str) -> tuple[list[int], list[tuple[int, str]]]:
    steps, strange = scan(directory)
    return steps, list(strange.items())


def _found(directory: Path | str, step: int, comm: Comm | None) -> tuple[Path, int]:
    """Where rank 0 finds a step, and the folder's number in its file system."""

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
