"""Norms of the weights after an update, where the log of that update has them."""

from __future__ import annotations

from mudd_core.config import Config
from mudd_core.engine.mup_statistics import has_statistics
from mudd_core.engine.weight_norms import norms_of
from mudd_core.run.loop.session import Session
from mudd_core.run.report.style import logs_step, reads_norms


def read_weight_norms(run: Session) -> None:
    """Leave the norms after the newest update for the log, where it has them; all ranks call it together."""
    step = run.state.step_done
    if not reads_norms(run.config, step):
        return
    if not run.together and not run.ranks.first:
        return
    own = run.engine.weight_squares()
    run.weight_norms = (step, norms_of(run.ranks.gathered(own) if run.together else [own]))


def reads_weights(config: Config, step: int) -> bool:
    """Return whether the log reads weights after update `step`.

    All ranks ask: all wait for the weights of other nodes then.
    """
    statistics = has_statistics(config) and (logs_step(config, step) or logs_step(config, step + 1))
    return statistics or reads_norms(config, step)
