"""The peak that the fraction of a run refers to: the best of several short measurements over its first steps."""

from __future__ import annotations

from collections.abc import Callable

TRIES = 3
"""Of a measurement, about 2 ms each: all of them together take no longer than one of 20 tries did."""

_AFTER_STEPS = (1, 2, 4, 8, 16, 32)


class Peak:
    """Operations a second, measured now and again behind the first steps: one measurement may meet other work.

    measure: gives one measurement.
    """

    def __init__(self, measure: Callable[[], float]) -> None:
        self._measure = measure
        self._steps = 0
        self.flops = measure()

    def took_step(self) -> None:
        """Count a step, and measure again behind some of the first ones."""
        self._steps += 1
        if self._steps in _AFTER_STEPS:
            self.flops = max(self.flops, self._measure())

    def fraction(self, flops: float) -> float:
        """A run's operations a second over the peak, at most 1: a run that is faster has measured a higher peak."""
        self.flops = max(self.flops, flops)
        return flops / self.flops
