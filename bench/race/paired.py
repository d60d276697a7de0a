"""Differences of paired values with 95 % intervals, and the table of the race."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

# Quantiles 0.975 of Student's t for 1 to 10 degrees of freedom.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half of the width of its 95 % interval; infinity for a single difference."""
    mean = statistics.fmean(differences)
    if len(differences) == 1:
        return mean, math.inf
    quantile = _T[min(len(differences) - 1, len(_T)) - 1]
    return mean, quantile * statistics.stdev(differences) / math.sqrt(len(differences))


def gain_text(differences: Sequence[float]) -> str:
    """Return the mean gain with its interval, such as "+0.041 [0.030, 0.052]"; "-" without pairs."""
    if not differences:
        return "-"
    mean, half = interval(differences)
    return f"{mean:+.4f}" if math.isinf(half) else f"{mean:+.4f} [{mean - half:+.4f}, {mean + half:+.4f}]"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
