"""The validations of a run so far: which was the best, and how many came after it."""

from __future__ import annotations

import math
from collections.abc import Iterable


class Validations:
    """Steps and losses (nats) of a run's validations, in their order.

    A lower loss is better. A loss that is not finite is never the best; of equal losses the first is.
    best: (loss, step), None before the first finite loss. since_best: validations after it.
    """

    def __init__(self, losses: Iterable[tuple[int, float]] = ()) -> None:
        self._losses: list[tuple[int, float]] = []
        self.best: tuple[float, int] | None = None
        self.since_best = 0
        for step, loss in losses:
            self.add(step, loss)

    def add(self, step: int, loss: float) -> None:
        """Take in one more."""
        self._losses.append((step, loss))
        if math.isfinite(loss) and (self.best is None or loss < self.best[0]):
            self.best, self.since_best = (loss, step), 0
        else:
            self.since_best += 1

    def best_first(self) -> list[int]:
        """Return the steps with a finite loss, from the lowest loss to the highest."""
        return [
            step for _, step in sorted((loss, step) for step, loss in self._losses if math.isfinite(loss))
        ]
