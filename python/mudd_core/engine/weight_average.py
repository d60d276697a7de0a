"""The mean of the trained weights that a run with train.average keeps, as one plane of the store.

`ema:DECAY`: the mean a starts at the weights before the first update. Every update sets a = a + (1 - DECAY) (w - a).
`last:N`: the mean over the last N updates of the run. The n-th of them sets a = a + (w - a) / n, which copies w for n =
1. A skipped update changes nothing and is not counted. All operations are in fp32, each rounded once
(cpp/mudd/train/weight_average.h).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.config.average import Averaging

if TYPE_CHECKING:
    from collections.abc import Container

    from mudd_core import _core
    from mudd_core.dist import Comm

AVERAGED = "updates/averaged"  # name of WeightAverage.counted in a checkpoint


class WeightAverage:
    """The average of an engine's weights.

    counted: [the update after which the mean starts (-1: a moving average), the updates in the mean]. It is a part of
    the saved state. Before the mean starts, the average is a copy of the weights, made when it is read.
    """

    def __init__(self, rule: Averaging, steps: int, step: _core.TrainStep) -> None:
        """Start a mean by `rule` in a run of `steps` updates. step: keeps the plane of the average."""
        self.rule, self._step, self._start = rule, step, rule.first_step(steps)
        self.counted = np.array([self._start, 0], np.int64)
        self._is_copy = False  # True if the plane has values: the mean, or a copy of the current weights

    @property
    def plane(self) -> int:
        """The plane of the average in the store."""
        return self._step.average_plane

    @property
    def updates(self) -> int:
        """The number of updates in the mean."""
        return int(self.counted[1])

    def weight(self, done: int) -> float:
        """Return the weight of the next update in the mean; 0 before the mean starts. done: updates before it."""
        if self.rule.last:
            return 1 / (self.updates + 1) if done >= self._start else 0.0
        self.fill()
        return 1 - self.rule.decay

    def count(self, weight: float) -> None:
        """Count an update that was made with this weight."""
        if weight:
            self.counted[1] += 1
        self._is_copy = bool(weight)

    def fill(self) -> None:
        """Copy the weights if the mean has not started."""
        if not self._is_copy:
            self._step.add_to_average(1.0)
            self._is_copy = True

    def loaded(self) -> None:
        """Use the values of the plane and of `counted` after a checkpoint was read into them."""
        self._is_copy = self.updates > 0

    def resume(self, saved: Container[str], done: int) -> str:
        """Continue with the average of a checkpoint that was read into the state, or start again.

        saved: the names of its tensors. done: its updates. Return the reason of a new start; empty if there is none.
        """
        has, same = AVERAGED in saved, int(self.counted[0]) == self._start
        has_mean = has and self.updates > 0
        self._is_copy = has_mean and same
        if not has or not same:
            self.counted[:] = self._start, 0
        if has_mean:
            return "" if same else "the checkpoint has the mean of other updates"
        return "the checkpoint has no mean" if done > max(0, self._start) else ""

    @contextmanager
    def swapped(self, comm: Comm | None) -> Iterator[None]:
        """Exchange average and weights inside the block. All ranks enter and leave it together."""
        self.fill()
        _meet(comm)
        self._step.swap_average()
        try:
            yield
        finally:
            _meet(comm)
            self._step.swap_average()


def _meet(comm: Comm | None) -> None:
    """Wait for all ranks, so that none reads weights that another one exchanges."""
    if comm is not None:
        comm.barrier()
