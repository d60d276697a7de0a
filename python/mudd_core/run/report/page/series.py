"""The curves, dots and marks of a chart, and the quantities of its x axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from mudd_core.base.types import Float64, Int64
from mudd_core.run.report.page.records import Places

COLUMNS = 480  # pixel columns of a chart; more of them would not show more


def kept_rows(across: Float64, values: Float64, columns: int = COLUMNS) -> Int64:
    """Return ascending indices of the points to draw: first, last, and the extremes in each pixel column.

    A column without finite values keeps one point, so that the line has a gap there. across: ascending x coordinates.
    """
    if len(values) <= 2 * columns:
        return np.arange(len(values), dtype=np.int64)
    edges = np.searchsorted(across, np.linspace(across[0], across[-1], columns + 1))
    edges[-1] = len(values)
    finite = np.isfinite(values)
    kept = [0, len(values) - 1]
    for begin, end in pairwise(edges):
        rows = begin + np.flatnonzero(finite[begin:end])
        if rows.size:
            kept += [rows[values[rows].argmin()], rows[values[rows].argmax()]]
        elif begin < end:
            kept.append(begin)
    return np.unique(np.array(kept, np.int64))


COLORS = 8  # series colors of page.css, --c0 to --c7

# Quantities of an x axis with integer values, and the description of a point at the pointer; # is its value.
WHOLE = ("steps", "tokens", "FLOPs")
DESCRIBED = {
    "steps": "step #",
    "tokens": "# tokens",
    "minutes": "# min",
    "FLOPs": "# FLOPs",
    "seconds": "# s",
}


@dataclass(frozen=True)
class Series:
    """A curve, or dots. places: its x coordinates by axis, such as Records.places of its steps.

    values: one for each step; NaN is a gap in the curve. texts: one for each step, shown at the pointer instead of the
    value. color: the index of a color in page.css; None uses the index of the series in its chart. spread: half the
    height of a band around each value. A series with strings or a band is not thinned.
    """

    name: str
    places: Places
    values: Float64
    dots: bool = False
    color: int | None = None
    texts: Sequence[str] = ()
    spread: Float64 | None = None

    @property
    def lone(self) -> bool:
        """True if all finite values are at one step, so that there is no curve to draw."""
        first = next(iter(self.places.values()))
        return len(np.unique(first[np.isfinite(self.values)])) < 2

    def thinned(self) -> Series:
        """Return the series with only the points that a chart can show."""
        if self.texts or self.spread is not None:
            return self
        rows = kept_rows(next(iter(self.places.values())), self.values)
        places = {name: column[rows] for name, column in self.places.items()}
        return replace(self, places=places, values=self.values[rows])


@dataclass(frozen=True)
class Mark:
    """A vertical line at a moment of the run; the pointer shows its text. places: its x coordinates by axis."""

    places: Mapping[str, float]
    text: str
