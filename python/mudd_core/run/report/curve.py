"""The loss curve of a run: SVG in a notebook; characters and a table of the last updates in a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np

from mudd_core.base.paths import local
from mudd_core.base.show.chart import COLORS, COLUMNS, FINE, Axis, Chart, Point, axis, means, text_chart
from mudd_core.base.show.tables import text_table
from mudd_core.base.show.terminal import Screen
from mudd_core.base.units import duration
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.run.store.metrics import Row

Points: TypeAlias = "Sequence[Point]"
MOST_POINTS = 2000  # points of a line: more than a chart has pixel columns
_LINE, _DOT = ".", "o"  # marks in a chart of characters
_FINE_LINE = "\u2812"  # mark in a legend: the two dots in the middle of a braille character


@dataclass(frozen=True)
class Curve:
    """A chart of a metric over steps, as lines and dots.

    Its name alone shows it in a notebook and at a prompt; save(FILE) writes it.
    """

    title: str
    label: str
    lines: Mapping[str, Points]
    dots: Mapping[str, Points] = field(default_factory=dict)

    def svg(self) -> str:
        """Return the chart as the content of an SVG file."""
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
        """Return the chart in characters.

        shown: the screen that prints it; None draws 64 columns of ASCII inside the axes.
        """
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
    """Return the curve of a metric, with the validations as dots if it is the loss.

    The curve has no line if neither table has the metric.
    """
    dots: dict[str, Points] = {}
    if name == "loss" and validations.rows:
        dots["validation"] = _points(validations, "val_loss")
    table = validations if name not in metrics and name in validations else metrics
    return Curve(title, name, {name: _points(table, name)} if name in table else {}, dots)


def _points(table: Metrics, name: str) -> Points:
    """Return (step, value) of a column, thinned to at most MOST_POINTS."""
    steps, values = table["step"], table[name]
    every = max(1, -(-len(steps) // MOST_POINTS))
    return [(float(step), float(value)) for step, value in zip(steps[::every], values[::every], strict=True)]


ROWS = 5
NOT_FINITE = "not finite"
_COLUMNS = (
    ("loss", "loss", ".4f"),
    ("grad norm", "grad_norm", ".4g"),
    ("lr", "lr", ".3e"),
    ("tokens/s", "tokens_per_second", ",.0f"),
    ("of peak", "peak_share", ".0%"),
)


def curve_and_last_rows(title: str, rows: Sequence[Row], shown: Screen) -> list[str]:
    """Return the lines of the curve and of the table, with an empty line before each.

    There is no curve with fewer than two losses.
    """
    updates = [row for row in rows if "val_loss" not in row]
    validations = [row for row in rows if "val_loss" in row]
    losses = [row.get("loss") for row in updates] + [row["val_loss"] for row in validations]
    lines = []
    if updates and sum(loss is not None for loss in losses) > 1:
        drawn = curve(title, "loss", Metrics.of_rows(updates), Metrics.of_rows(validations))
        lines += ["", *drawn.text(shown).splitlines()]
    table = last_rows(updates)
    return [*lines, "", *table] if table else lines


def last_rows(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table of the last updates of metrics.jsonl; an empty list without updates.

    A dash replaces a metric that records of an earlier version lack.
    """
    shown = rows[-ROWS:]
    if not shown:
        return []
    head = ["step", *(name for name, _, _ in _COLUMNS), "time", ""]
    skips = any(row.get("skipped") for row in shown)
    table = [head, *map(_cells, shown)]
    return text_table(table if skips else [cells[:-1] for cells in table], left=())


def shown_number(row: Row, name: str, form: str) -> str:
    """Return a metric of a record as text, or NOT_FINITE for null, which the log has for NaN and infinity."""
    value = row.get(name)
    return format(value, form) if isinstance(value, int | float) and math.isfinite(value) else NOT_FINITE


def _cells(row: Row) -> list[str]:
    numbers = (shown_number(row, name, form) if name in row else "-" for _, name, form in _COLUMNS)
    seconds = row.get("seconds")
    time = duration(seconds) if isinstance(seconds, int | float) else "-"
    return [str(row["step"]), *numbers, time, "skipped" if row.get("skipped") else ""]
