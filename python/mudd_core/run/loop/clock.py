"""An estimate of the remaining time of a run, from the times of its steps, validations and saves so far."""

from __future__ import annotations

import math


class Clock:
    """The measured times of steps, validations and saves, and an estimate for the remaining ones."""

    def __init__(
        self, steps: int, eval_every: int, save_every: int, eval_tokens_per_step_token: float, start: int = 0
    ) -> None:
        """Store the schedule. start: train.period_start.

        eval_tokens_per_step_token: tokens of a validation divided by tokens of a step, to guess the time of the first
        one.
        """
        self._steps, self._start = steps, start
        self._every = {"eval": eval_every, "save": save_every}
        self._step_seconds = math.nan  # an exponential moving average
        self._last: dict[str, float] = {}
        self._eval_ratio = eval_tokens_per_step_token

    def took_step(self, seconds: float) -> None:
        """Record the time of one more step."""
        # The first step also plans the graph and touches memory, so the second step's time replaces it.
        known = self._step_seconds
        if math.isnan(known) or not self._last.get("warm"):
            self._last["warm"] = 0.0 if math.isnan(known) else 1.0
            self._step_seconds = seconds
        else:
            self._step_seconds = known + 0.05 * (seconds - known)

    def took(self, what: str, seconds: float) -> None:
        """Record the time of a validation or save. what: 'eval' or 'save'."""
        self._last[what] = seconds

    def _left(self, what: str, step: int) -> int:
        every = self._every[what]
        steps, before = max(self._steps - self._start, 0), max(step - 1 - self._start, 0)
        periodic = steps // every - before // every if every else 0
        at_end = not steps or not every or steps % every != 0
        return periodic + int(at_end)

    def seconds_left(self, step: int) -> float:
        """Return the seconds from update `step` to the end of the run; NaN before the first update.

        They include a validation and a save that are due at this step.
        """
        return self._left_at(step, step, self._step_seconds)

    def seconds_ahead(self, step: int, step_seconds: float) -> float:
        """Return the same after the work that is due at `step`, with a guess of the seconds of an update."""
        return self._left_at(step, step + 1, step_seconds)

    def _left_at(self, step: int, due: int, step_seconds: float) -> float:
        """Return the seconds after update `step`. due: the first step whose validation and save are still to come."""
        # A forward pass takes about a third of a step.
        eval_seconds = self._last.get("eval", self._eval_ratio * step_seconds / 3)
        save_seconds = self._last.get("save", 0.0)
        return (
            (self._steps - step) * step_seconds
            + self._left("eval", due) * eval_seconds
            + self._left("save", due) * save_seconds
        )
