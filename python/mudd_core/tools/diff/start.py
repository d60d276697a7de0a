"""The states from which the first step that differs can be replayed in both runs, and their cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.units import duration
from mudd_core.tools.compare.compared import ComparedRun, column_of
from mudd_core.tools.diff.evidence import Evidence
from mudd_core.tools.diff.states import steps_of_checkpoints

LONG = 60.0  # seconds of training without a common checkpoint that need --train


@dataclass(frozen=True)
class Start:
    """A step from which both runs can start. common: both have a checkpoint of it, with equal states.

    last: the last step to replay. updates: of both runs, from their checkpoints to `last`. seconds: of these
    updates, at the logged speeds; NaN if these are unknown.
    """

    step: int
    common: bool
    last: int
    updates: int
    seconds: float

    @property
    def needs_leave(self) -> bool:
        """Return whether the user must type --train: no checkpoint is common, and the updates take long."""
        return not self.common and not self.seconds <= LONG

    @property
    def cost(self) -> str:
        """Return the updates and their time, as text."""
        return _cost(self.updates, self.seconds)


def _cost(updates: int, seconds: float) -> str:
    about = f", about {duration(seconds)}" if np.isfinite(seconds) else ""
    return f"{updates:,} update{'s' * (updates != 1)}{about}"


def starts(found: Evidence, last: int) -> list[Start]:
    """Return the states from which step `last` can be replayed, the cheapest first."""
    runs = (found.base, found.other)
    equal = {step for step in found.states.equal if step < last}
    limit = last if found.states.step is None else min(last, found.states.step)
    saved = [[step for step in steps_of_checkpoints(run) if step < limit] for run in runs]
    made = [_start(step, last, step in equal, runs, saved) for step in {0, *equal, *saved[0], *saved[1]}]
    # A common checkpoint needs no further update to show that both runs have one state there.
    return sorted(made, key=lambda start: (not start.common, start.updates, -start.step))


def require_step(run: ComparedRun, step: int, *, train: bool) -> None:
    """Raise UserError for a step that a run has not made, or that takes minutes without --train."""
    last = run.records.last_step if run.until is None else run.until
    if step > last:
        raise UserError(f"[diff] --step: expected a step of {run.typed}, 1 to {last:,}, got {step:,}")
    saved = [one for one in steps_of_checkpoints(run) if one < step]
    seconds = step * _seconds_per_step(run)
    if not saved and not train and not seconds <= LONG:
        raise UserError(
            f"[diff] --step: expected a step after the first checkpoint of {run.typed}, got {step:,}; to replay it "
            f"takes {_cost(step, seconds)} from the start: add --train"
        )


def _start(
    step: int, last: int, common: bool, runs: Sequence[ComparedRun], saved: Sequence[list[int]]
) -> Start:
    counts = [last - max((one for one in steps if one <= step), default=0) for steps in saved]
    seconds = sum(count * _seconds_per_step(run) for count, run in zip(counts, runs, strict=True))
    return Start(step, common, last, sum(counts), seconds)


def _seconds_per_step(run: ComparedRun) -> float:
    """Return the median time of an update in the log; NaN without one."""
    rates = column_of(run.updates, "tokens_per_second")
    known = rates[np.isfinite(rates) & (rates > 0)]
    return run.tokens_per_step / float(np.median(known)) if len(known) else float("nan")
