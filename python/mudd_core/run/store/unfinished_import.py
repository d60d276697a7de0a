"""Folders of a killed import: they name a model, but have no checkpoint with its weights."""

from __future__ import annotations

from mudd_core.base.errors import UserError
from mudd_core.base.members import object_in
from mudd_core.base.paths import IMPORTED
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.run_folder import RunFolder

TRAINED_ON = (
    "that the model was trained on"  # data.recipe_text of an import whose settings do not name a text
)
_OF_IMPORT = {"run_id", "started"}  # run.json of an import; the first start of a training adds facts


def is_unfinished_import(run: RunFolder) -> bool:
    """Return True if an import started in a folder that has no checkpoint.

    Imports of older versions wrote directly into the folder, so a kill could leave it in this state.
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
    """Raise UserError for a folder of a killed import, in which a start would train random weights."""
    if is_unfinished_import(run):
        raise UserError(
            f"[workdir] {run} is of an import that was broken off: it has no checkpoint with the imported weights. "
            "Repeat that import or tune command, or give another --workdir"
        )
