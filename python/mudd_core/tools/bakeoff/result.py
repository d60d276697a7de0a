"""The metrics of a bake-off: curves over tokens, FLOPs and seconds, means with intervals, paired differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypedDict

from mudd_core.engine.flops import flops_per_token
from mudd_core.engine.model_shape import resolved_model
from mudd_core.run.store.metrics import rows_of
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.bakeoff.comparison import Candidate, Comparison, parameters, total_cost
from mudd_core.tools.bakeoff.runs import folders_of

_LONGEST = 10_000  # most terms of the fraction; fewer than 100 are used
_HALVINGS = 200  # more than the bits of a double; bisection stops when the bounds meet


@dataclass(frozen=True)
class Point:
    """One point of a curve: the cost so far, and the measured value."""

    step: int
    tokens: float
    flops: float
    seconds: float
    value: float


def mean_and_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and half the width of its 95 % interval (Student's t); None for a single value."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return mean, None
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1))
    return mean, quantile(0.975, n - 1) * spread / math.sqrt(n)


def read_curve(folder: Path, measure: str, flops_of_token: float, window: int = 20) -> list[Point]:
    """Return the curve of one run; training losses are means over the last `window` records."""
    rows = list(rows_of(RunFolder(folder)))
    train = {row["step"]: row for row in rows if "val_loss" not in row}
    if measure == "loss":
        steps = sorted(train)
        seen = [(s, train[s]["loss"]) for s in steps if train[s]["loss"] is not None]
        values = {
            s: math.fsum(v for _, v in seen[max(0, i + 1 - window) : i + 1]) / min(i + 1, window)
            for i, (s, _) in enumerate(seen)
        }
    else:
        values = {row["step"]: row[measure] for row in rows if measure in row}
    return [
        Point(s, train[s]["tokens"], train[s]["tokens"] * flops_of_token, train[s]["seconds"], value)
        for s, value in sorted(values.items())
        if s in train
    ]


def read_curves(
    comparison: Comparison, seeds: int, out: Path, vocab_size: int
) -> dict[str, list[list[Point]]]:
    """Return the curve of each seed for every candidate."""
    return {
        one.name: [
            _whole_curve(one, folders_of(out, one, seed), comparison.measure, vocab_size)
            for seed in range(seeds)
        ]
        for one in comparison.candidates
    }


def _whole_curve(candidate: Candidate, folders: Sequence[Path], measure: str, vocab_size: int) -> list[Point]:
    """Concatenate the curves of all stages; the cost of earlier stages is included."""
    whole: list[Point] = []
    for config, folder in zip(candidate.stages, folders, strict=True):
        shape = resolved_model(config, vocab_size)
        flops = flops_per_token(shape, shape.vocab_size, config.train.seq_len)
        spent = whole[-1] if whole else Point(0, 0.0, 0.0, 0.0, 0.0)
        whole += [
            Point(
                p.step + spent.step,
                p.tokens + spent.tokens,
                p.flops + spent.flops,
                p.seconds + spent.seconds,
                p.value,
            )
            for p in read_curve(folder, measure, flops)
        ]
    return whole


class MeanPoint(TypedDict):
    """One point of a mean curve. interval95: half the width of its 95 % interval; None for one seed."""

    step: int
    tokens: float
    flops: float
    seconds: float
    mean: float
    interval95: float | None


class ModelResult(TypedDict):
    """The metrics of one model; lists are by seed."""

    name: str
    family: str
    parameters: int
    training_flops: float
    steps: int
    tokens: int
    seconds: list[float]
    final: list[float]
    mean: float
    interval95: float | None
    difference: float | None
    difference_interval95: float | None
    verdict: str
    curve: list[MeanPoint]


class Result(TypedDict):
    """The content of result.json."""

    title: str
    measure: str
    seeds: int
    vocabulary: int
    environment: str
    note: str
    models: list[ModelResult]


def averaged(curves: Sequence[Sequence[Point]]) -> list[MeanPoint]:
    """Return mean and interval over seeds for each point."""
    points: list[MeanPoint] = []
    for places in zip(*curves, strict=False):
        mean, interval = mean_and_interval([place.value for place in places])
        seconds = math.fsum(place.seconds for place in places) / len(places)
        first = places[0]
        points.append(
            {
                "step": first.step,
                "tokens": first.tokens,
                "flops": first.flops,
                "seconds": seconds,
                "mean": mean,
                "interval95": interval,
            }
        )
    return points


def verdict(difference: float, interval: float | None) -> str:
    """Return a phrase about a paired difference (candidate minus reference; lower is better)."""
    if interval is None:
        return "one seed: no interval, no verdict"
    if abs(difference) <= interval:
        return "no difference seen"
    return "better than the first" if difference < 0 else "worse than the first"


def compare(
    comparison: Comparison, curves: dict[str, list[list[Point]]], vocab_size: int, environment: str
) -> Result:
    """Return the whole result as plain values for the JSON file."""
    reference = [curve[-1].value for curve in curves[comparison.candidates[0].name]]
    results: list[ModelResult] = []
    for one in comparison.candidates:
        last = [curve[-1] for curve in curves[one.name]]
        mean, interval = mean_and_interval([p.value for p in last])
        pairs = [p.value - base for p, base in zip(last, reference, strict=True)]
        difference, spread = mean_and_interval(pairs)
        is_first = one is comparison.candidates[0]
        results.append(
            {
                "name": one.name,
                "family": one.config.model.family,
                "parameters": parameters(one.config, vocab_size),
                "training_flops": total_cost(one, vocab_size),
                "steps": sum(config.train.steps for config in one.stages),
                "tokens": int(last[0].tokens),
                "seconds": [p.seconds for p in last],
                "final": [p.value for p in last],
                "mean": mean,
                "interval95": interval,
                "difference": None if is_first else difference,
                "difference_interval95": None if is_first else spread,
                "verdict": "the reference" if is_first else verdict(difference, spread),
                "curve": averaged(curves[one.name]),
            }
        )
    return {
        "title": comparison.title,
        "measure": comparison.measure,
        "seeds": len(reference),
        "vocabulary": vocab_size,
        "environment": environment,
        "note": comparison.note,
        "models": results,
    }


@cache
def quantile(probability: float, degrees: int) -> float:
    """Return the t with P(T <= t) = probability, in [0.5, 1), to at least 9 digits."""
    if not 0.5 <= probability < 1.0 or degrees < 1:
        raise ValueError(
            f"[students_t] expected a probability in [0.5, 1) and degrees >= 1, got {probability}, {degrees}"
        )
    low, high = 0.0, 1.0
    while _above(high, degrees) > 1.0 - probability:
        high *= 2.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if _above(middle, degrees) > 1.0 - probability else (low, middle)
    return high


def _above(t: float, degrees: int) -> float:
    """Return P(T > t) for t >= 0: half of the incomplete beta function at degrees / (degrees + t^2)."""
    return 0.5 * _incomplete_beta(0.5 * degrees, 0.5, t * t, float(degrees))


def _incomplete_beta(a: float, b: float, rest: float, part: float) -> float:
    """Return the regularized I_x(a, b) at x = part / (part + rest).

    Both are arguments, because 1 - x loses digits for small `rest`.
    """
    x, y = part / (part + rest), rest / (part + rest)
    if y == 0.0:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(y))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, y) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction of the incomplete beta function by Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0), tiny)
    value = d
    for m in range(1, _LONGEST):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + term * d, tiny)
            c = _away_from_zero(1.0 + term / c, tiny)
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
