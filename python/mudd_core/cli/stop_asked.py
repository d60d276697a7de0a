"""Whether a command that reads a run by several ranks was asked to stop: all of them hear it at the same place."""

from __future__ import annotations

from collections.abc import Callable

from mudd_core.run.ranks.ranks import Ranks


def asked_to_stop(ranks: Ranks, step: int) -> Callable[[], bool]:
    """A function that is true once a rank was asked to stop; all ranks call it before each batch or token.

    step: of the checkpoint, for the message of a rank that ends. In one process a signal ends the command itself.
    """
    comm = ranks.comm
    if comm is None or ranks.world == 1:
        return lambda: False
    from mudd_core.run.loop import signals

    def stop() -> bool:
        comm.set_phase("evaluate", step)
        return ranks.any(signals.stop_reason() is not None)

    return stop
