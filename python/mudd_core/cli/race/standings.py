"""The result of a race: means and paired gains for each budget, and the minutes to the results of the first recipe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from mudd_core.cli.race.recipes import Recipe
from mudd_core.cli.race.runs import RunResult
from mudd_core.tools.bakeoff.result import mean_and_interval

BITS, LOSS = "bits per byte", "loss (nats per target)"


@dataclass(frozen=True)
class Standing:
    """A recipe at one budget. Lower values are better; results: by seed, None for runs that have not ended.

    mean, interval95: of the results; the interval is half the width, None for fewer than two. gain, gain_interval95:
    by how much the first recipe's results are higher, with equal seeds; None without a pair. as_first: the minutes in
    which the recipe reaches the mean of the first recipe at this budget; None if its budgets do not show it.
    """

    minutes: float
    steps: int
    results: tuple[float | None, ...]
    mean: float | None
    interval95: float | None
    gain: float | None
    gain_interval95: float | None
    as_first: float | None = None


@dataclass(frozen=True)
class Row:
    """A recipe: seconds of a step, and its standing at each budget in ascending order."""

    recipe: Recipe
    seconds: float
    standings: tuple[Standing, ...]


def measure_of(results: Sequence[RunResult | None]) -> str:
    """Return BITS, or LOSS if a run with a finite loss has no bits per byte."""
    ended = [one for one in results if one is not None and math.isfinite(one.loss)]
    return LOSS if any(one.bits_per_byte is None for one in ended) else BITS


def value_of(result: RunResult | None, measure: str) -> float | None:
    """Return the compared value of a run; None if it has not ended or is not finite."""
    if result is None:
        return None
    found = result.loss if measure == LOSS else result.bits_per_byte
    return found if found is not None and math.isfinite(found) else None


def standing(
    minutes: float, steps: int, results: Sequence[float | None], first: Sequence[float | None]
) -> Standing:
    """Return the standing of a recipe at one budget. first: the results of the first recipe by seed."""
    ended = [one for one in results if one is not None]
    gains = [
        base - one for one, base in zip(results, first, strict=True) if one is not None and base is not None
    ]
    mean, interval = mean_and_interval(ended) if ended else (None, None)
    gain, around = mean_and_interval(gains) if gains else (None, None)
    return Standing(minutes, steps, tuple(results), mean, interval, gain, around)


def minutes_to(value: float, standings: Sequence[Standing]) -> float | None:
    """Return the minutes in which the means fall to a value, by a line over the logarithm of the minutes.

    None if the value is above the mean of the shortest budget or below all means.
    """
    points = [(one.minutes, one.mean) for one in standings if one.mean is not None]
    for (left, before), (right, after) in pairwise(points):
        if after <= value <= before:
            share = (before - value) / (before - after) if before > after else 0.0
            return float(left * (right / left) ** share)
    return points[0][0] if points and points[0][1] == value else None
