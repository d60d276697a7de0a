"""Folders in which an import was killed: they name a model, and no checkpoint has its weights."""

from __future__ import annotations

from mudd_core.base.errors import UserError
from mudd_core.base.members import object_in
from mudd_core.base.paths import IMPORTED
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.run_folder import RunFolder

TRAINED_ON = "that the model was trained on"  # data.recipe_text of an import whose settings name no text
_OF_IMPORT = {"run_id", "started"}  # run.json of an import; the first start of a training adds facts


def is_unfinished_import(run: RunFolder) -> bool:
    """Return whether an import began in a folder, and no checkpoint is there.

    An import of an older version wrote into the folder itself, so a kill could leave it so.
    """
    if not run.holds_run or Checkpoints(run).steps():
        return False
    if (run.path / IMPORTED).is_dir():
        return True
    if run.has_identity:
        return set(object_in(run.run_file)) == _OF_IMPORT
    data = object_in(run.config_file).get("data")
    return isinstance(data, dict) and data.get("recipe_text") == TRAINED_ON


def require_weights(run: RunFolder) -> None:
    """Raise UserError for a folder in which an import was killed: a start would train random weights."""
    if is_unfinished_import(run):
        raise UserError(
            f"[workdir] {run} is of an import that was broken off: it has no checkpoint with the imported weights. "
            "Repeat that import or tune command, or give another --workdir"
        )
