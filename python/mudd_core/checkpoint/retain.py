"""Deleting steps: old ones behind a newer one that verifies, and those of a path that a run has left."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import FormatError, UserError
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.checkpoint.ranks import on_first
from mudd_core.checkpoint.steps import find_step, list_steps, new_id, step_folder, step_name
from mudd_core.checkpoint.verify import verify_step
from mudd_core.dist import Comm


def keep_last(
    checkpoints_dir: Path | str,
    keep: int,
    *,
    run_id: str,
    saved_step: int,
    spare: int | None = None,
    every: int = 0,
    always: Collection[int] = (),
    best_first: Sequence[int] = (),
    comm: Comm | None = None,
) -> list[int]:
    """Delete a run's steps up to saved_step; return the deleted ones.

    The newest `keep` (0: all), `spare`, multiples of `every` and the steps in `always` stay.

    best_first: steps in the order of their validation losses; the first of them that is there stays too.
    saved_step is read back and verified first. If it does not verify, FormatError, and
    nothing is deleted; so at least one verified step always remains. Steps behind it (damaged ones that a resume
    passed over), of another run or without a manifest that can be read are neither counted nor touched. comm: all ranks
    call this; each reads back its share of the files, rank 0 deletes.
    """
    if keep < 0:
        raise ValueError(f"[checkpoint] keep: expected 0 or more, got {keep}")

    def superfluous() -> list[int]:
        own = [
            step
            for step in list_steps(checkpoints_dir)
            if step <= saved_step and _run_of(find_step(checkpoints_dir, step)) == run_id
        ]
        old = own[:-keep] if keep else []
        best = next((step for step in best_first if step in own), None)
        kept = {spare, best, *always}
        return [step for step in old if step not in kept and not (every and step % every == 0)]

    doomed = on_first(comm, superfluous)
    if doomed:
        verify_step(step_folder(checkpoints_dir, saved_step), run_id=run_id, comm=comm)
    on_first(comm, lambda: _remove(checkpoints_dir, doomed))
    return doomed


def drop_after(checkpoints_dir: Path | str, step: int, *, run_id: str) -> list[int]:
    """Deletes a run's steps behind `step`, the newest first; returns the deleted ones."""
    doomed = [
        later
        for later in reversed(list_steps(checkpoints_dir))
        if later > step and _run_of(find_step(checkpoints_dir, later)) == run_id
    ]
    _remove(checkpoints_dir, doomed)
    return doomed


def _remove(directory: Path | str, steps: list[int]) -> None:
    for step in steps:
        _core.remove_committed(str(directory), step_name(step), new_id())


def _run_of(folder: Path) -> str | None:
    """The run a step says it is of; None where its manifest cannot be read."""
    try:
        return read_manifest(folder).run_id
    except (FormatError, UserError, OSError):
        return None
