"""The curve of a run: SVG in a notebook, characters in a terminal, from the standard library alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

from mudd_core.base.paths import local
from mudd_core.base.show.chart import COLORS, Axis, Chart, Point, axis
from mudd_core.base.show.terminal import Screen
from mudd_core.base.show.text_chart import COLUMNS, FINE, means, text_chart
from mudd_core.run.store.metric_arrays import Metrics

Points: TypeAlias = "Sequence[Point]"
MOST_POINTS = 2000  # of a line: more than its pixels
_LINE, _DOT = ".", "o"  # in a terminal
_FINE_LINE = "\u2812"  # in a legend: the two dots in the middle of a braille character


@dataclass(frozen=True)
class Curve:
    """A metric over steps, as a line and dots; shown by its name in a notebook and at a prompt, or save(FILE)."""

    title: str
    label: str
    lines: Mapping[str, Points]
    dots: Mapping[str, Points] = field(default_factory=dict)

    def svg(self) -> str:
        """The chart as an SVG file."""
        x, y = self._axes()
        chart = Chart(self.title, x, y)
        for color, (name, points) in zip(COLORS, [*self.lines.items(), *self.dots.items()], strict=False):
            if name in self.lines:
                chart.line(points, color)
            else:
                chart.dots(points, color)
            chart.legend(name, color)
        return chart.finish()

    def text(self, shown: Screen | None = None) -> str:
        """The chart in characters. shown: where it is printed; None: 64 columns of ASCII inside the axes."""
        fine, width = (shown.fine, shown.width) if shown is not None else (False, 0)
        mark = FINE if fine else _LINE
        lines = [means(points, 2 * (width or COLUMNS)) for points in self.lines.values()]
        series = [*((mark, points) for points in lines), *((_DOT, p) for p in self.dots.values())]
        marks = [f"{_FINE_LINE if fine else _LINE} {name}" for name in self.lines]
        marks += [f"{_DOT} {name}" for name in self.dots]
        return text_chart(f"{self.title}   {'   '.join(marks)}", *self._axes(), series, width=width)

    def save(self, file: str | Path) -> Path:
        """Write the SVG to a file and return its path."""
        path = local(file, "[plot] file")
        path.write_text(self.svg(), encoding="utf-8")
        return path

    def _axes(self) -> tuple[Axis, Axis]:
        points = [point for part in (*self.lines.values(), *self.dots.values()) for point in part]
        finite = [y for _, y in points if np.isfinite(y)]
        return axis([x for x, _ in points], "step", whole=True, margin=0.0), axis(finite, self.label)

    def _repr_html_(self) -> str:
        return f'<div style="max-width:760px">{self.svg()}</div>'

    def __repr__(self) -> str:
        return self.text()


def curve(title: str, name: str, metrics: Metrics, validations: Metrics) -> Curve:
    """The curve of a metric; of the loss with the validations as dots. KeyError for a metric that is not there."""
    dots: dict[str, Points] = {}
    if name == "loss" and validations.rows:
        dots["validation"] = _points(validations, "val_loss")
    table = validations if name not in metrics and name in validations else metrics
    return Curve(title, name, {name: _points(table, name)} if name in table else {}, dots)


def _points(table: Metrics, name: str) -> Points:
    """(step, value) of a column, thinned to what a chart can show."""
    steps, values = table["step"], table[name]
    every = max(1, -(-len(steps) // MOST_POINTS))
    return [(float(step), float(value)) for step, value in zip(steps[::every], values[::every], strict=True)]
