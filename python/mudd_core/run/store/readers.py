"""What ranks need of a saved run that they read, checked before mpirun starts them."""

from __future__ import annotations

from collections.abc import Callable

from mudd_core.base.storage import is_url
from mudd_core.config import Config
from mudd_core.run.store.best_step import step_asked
from mudd_core.run.store.run_folder import RunFolder


def require_readers(
    workdir: str | None, read: Callable[[], tuple[Config, RunFolder]], step: str | int | None, name: str
) -> Callable[[int], None]:
    """A function that raises UserError for a run that so many ranks cannot read, or that has no such step.

    read: config and folder of the run. name: of the argument that gives the step. A run at a URL is left to the
    ranks, which fetch it.
    """

    def require(ranks: int) -> None:
        if is_url(workdir or ""):
            return
        config, folder = read()
        config.mesh.require_readers(ranks)
        step_asked(step, folder, name)

    return require
