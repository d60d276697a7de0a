"""Loss spikes: logged steps whose loss is far above the logged steps before them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mudd_core.base.types import Float64, Int64
from mudd_core.run.store.metrics import Row

WINDOW = 50  # logged steps before a step
LEAST = 20  # a step with fewer logged steps before it is not compared
DEVIATIONS = 6.0
_NORMAL = (
    1.4826  # the standard deviation of normal values is this multiple of their median absolute deviation
)
_SMALLEST = 1e-4  # fraction of the median that a deviation has at least, for losses that hardly change
_AT_ONCE = 20_000


@dataclass(frozen=True)
class Spike:
    """A step with its loss in nats. median: of the logged steps before. deviations: robust ones above the median."""

    step: int
    loss: float
    median: float
    deviations: float


def spikes_of(steps: Int64 | Float64, losses: Int64 | Float64) -> list[Spike]:
    """Return the steps with a loss more than DEVIATIONS robust deviations above the median of the WINDOW steps before.

    A robust deviation is 1.4826 times the median absolute deviation. Losses that are not finite are left out.
    """
    values = np.asarray(losses, np.float64)
    finite = np.isfinite(values)
    values, places = values[finite], np.asarray(steps, np.int64)[finite]
    found: list[Spike] = []
    for at in range(LEAST, min(WINDOW, len(values))):
        found += _above(values[None, :at], values[at : at + 1], places[at : at + 1])
    for first in range(WINDOW, len(values), _AT_ONCE):
        last = min(len(values), first + _AT_ONCE)
        before = np.lib.stride_tricks.sliding_window_view(values[first - WINDOW : last - 1], WINDOW)
        found += _above(before, values[first:last], places[first:last])
    return found


def untested(rows: Iterable[Row], log_every: int) -> str:
    """Return why no step in the entries of metrics.jsonl was compared; empty if at least one was.

    log_every: the train.log_every of the run.
    """
    logged = sum(1 for row in rows if isinstance(loss := row.get("loss"), float) and math.isfinite(loss))
    if logged > LEAST:
        return ""
    advice = "; train.log_every=1 logs every step" if log_every > 1 else ""
    return (
        f"no step was compared: a step needs at least {LEAST} logged steps before it, and the run has {logged} in "
        f"all{advice}"
    )


def spikes_in(rows: Iterable[Row]) -> list[Spike]:
    """Return the spikes in the entries of metrics.jsonl."""
    logged = [(row["step"], row["loss"]) for row in rows if isinstance(row.get("loss"), float)]
    steps, losses = (
        np.array(values, np.float64) for values in (zip(*logged, strict=True) if logged else ((), ()))
    )
    return spikes_of(steps, losses)


def _above(before: Float64, values: Float64, steps: Int64) -> Iterator[Spike]:
    """Yield the spikes among the values [n]. before: the values before each of them, [n, WINDOW or fewer]."""
    median = np.median(before, axis=1)
    # Most values are below the median of falling losses, and the deviation is only needed for the other ones.
    at = np.flatnonzero(values > median * (1 + DEVIATIONS * _SMALLEST))
    deviation = _NORMAL * np.median(np.abs(before[at] - median[at, None]), axis=1)
    deviation = np.maximum(deviation, _SMALLEST * np.abs(median[at]))
    ratio = (values[at] - median[at]) / np.maximum(deviation, np.finfo(np.float64).tiny)
    for one in np.flatnonzero(ratio > DEVIATIONS).tolist():
        place = at[one]
        yield Spike(int(steps[place]), float(values[place]), float(median[place]), float(ratio[one]))


def worst_of(spikes: Sequence[Spike]) -> Spike:
    """Return the spike with the most deviations."""
    return max(spikes, key=lambda one: one.deviations)


def spikes_line(spikes: Sequence[Spike]) -> str:
    """Return one line about the spikes of a run."""
    worst = worst_of(spikes)
    count = f"{len(spikes):,} steps" if len(spikes) > 1 else "1 step"
    return (
        f"loss spikes: {count}, the worst is step {worst.step:,} with loss {worst.loss:.4f}, "
        f"{worst.deviations:.0f} deviations above the median {worst.median:.4f}"
    )
