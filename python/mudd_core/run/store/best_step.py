"""The checkpoint that --step names, and its check before mpirun starts ranks that read it."""

from __future__ import annotations

from collections.abc import Callable

from mudd_core.base.errors import UserError
from mudd_core.base.storage import is_url
from mudd_core.config import Config
from mudd_core.config.values import whole
from mudd_core.run.records.events import Validations
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.metrics import validations_of
from mudd_core.run.store.run_folder import RunFolder

BEST = "best"  # a value of --step


def best_step(folder: RunFolder) -> int | None:
    """Return the saved step with the lowest recorded validation loss; None if no saved step was validated."""
    saved = set(Checkpoints(folder).steps())
    validations = Validations(validations_of(folder, max(saved, default=0)).losses)
    return next((step for step in validations.best_first() if step in saved), None)


def step_asked(text: str | int | None, folder: RunFolder, name: str = "[arguments] --step") -> int | None:
    """Return the step of `--step`: a number, or best; None without it. Raise UserError if no step is the best."""
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
            f"{name}: expected a run with a checkpoint at a validation step, got {folder}, which has "
            "none; train with train.keep_best=true to keep one"
        )
    return found


def require_readers(
    workdir: str | None, read: Callable[[], tuple[Config, RunFolder]], step: str | int | None, name: str
) -> Callable[[int], None]:
    """Return a function that raises UserError if a number of ranks cannot read the run, or if the step is missing.

    read: returns config and folder of the run. name: the name of the step argument, for messages. A run at a URL is
    checked by the ranks, which fetch it.
    """

    def require(ranks: int) -> None:
        if is_url(workdir or ""):
            return
        config, folder = read()
        config.mesh.require_readers(ranks)
        step_asked(step, folder, name)

    return require
