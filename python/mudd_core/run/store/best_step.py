"""The checkpoint with the best validation loss of a run."""

from __future__ import annotations

from mudd_core.base.errors import UserError
from mudd_core.config.values import whole
from mudd_core.run.records.validations import Validations
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.metrics import validations_of
from mudd_core.run.store.run_folder import RunFolder

BEST = "best"  # a value of --step


def best_step(folder: RunFolder) -> int | None:
    """The saved step with the lowest recorded validation loss; None where no saved step was validated."""
    saved = set(Checkpoints(folder).steps())
    validations = Validations(validations_of(folder, max(saved, default=0)).losses)
    return next((step for step in validations.best_first() if step in saved), None)


def step_asked(text: str | int | None, folder: RunFolder, name: str = "[arguments] --step") -> int | None:
    """The step that `--step` names: a number, or best; None without one. UserError where there is no best one."""
    if text is None or isinstance(text, int):
        return text
    if text != BEST:
        try:
            return whole(name, text, 0)
        except UserError as error:
            raise UserError(f"{error}, or {BEST}") from None
    found = best_step(folder)
    if found is None:
        raise UserError(
            f"{name}: expected a run with a checkpoint at a validation, got {folder}, which has none; "
            "train.keep_best=true keeps one"
        )
    return found
