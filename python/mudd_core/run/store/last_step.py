"""The last step of a run, by its log and its checkpoints: a stopped run is saved between two log entries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.checkpoint.steps import MANIFEST
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.metrics import last_update
from mudd_core.run.store.run_folder import RunFolder


@dataclass(frozen=True)
class LastStep:
    """A step of a run. loss: in nats; None if it is not finite or unknown. changed: the time, in seconds since 1970."""

    step: int
    loss: float | None
    changed: float


def last_step(folder: RunFolder, named: int | None = None) -> LastStep | None:
    """Return the last step with a log entry or a checkpoint; None for a run without any.

    named: a saved step, which is returned instead.
    """
    saved = Checkpoints(folder).newest() if named is None else named
    manifest = folder.step_folder(saved) / MANIFEST
    row = {} if named is not None else last_update(folder)
    if row and row["step"] >= saved:
        return LastStep(row["step"], row["loss"], max(_changed(manifest), _changed(folder.metrics_file)))
    if not manifest.exists():
        return None
    return LastStep(saved, _saved_loss(manifest.parent), _changed(manifest))


def _saved_loss(folder: Path) -> float | None:
    """Return the loss of the last update in a checkpoint; None if it has none or cannot be read."""
    try:
        loss = read_manifest(folder).state.get("last_loss")
    except (FormatError, UserError, OSError):
        return None
    return loss if isinstance(loss, float) and math.isfinite(loss) else None


def _changed(file: Path) -> float:
    return file.stat().st_mtime if file.exists() else 0.0
