"""A comparison for a terminal or a pipe: tables, and curves over each other in characters."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

import numpy as np

from mudd_core.base.show.chart import Point, axis
from mudd_core.base.show.tables import text_table
from mudd_core.base.show.terminal import Screen
from mudd_core.base.show.text_chart import means, text_chart
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.tools.compare.compared import ComparedRun, short_names
from mudd_core.tools.compare.part import Part
from mudd_core.tools.compare.parts import parts_after_curves, parts_before_curves

_MEETING = "*"
_FALL = (
    4  # times the distance from the lowest point to the middle one: higher points are drawn at the upper edge
)


def comparison_text(runs: Sequence[ComparedRun], shown: Screen) -> str:
    """The whole text, without a line feed at its end."""
    lines: list[str] = []
    for part in parts_before_curves(runs):
        lines += [*_part(part, shown.width), ""]
    for title, name, tables in (
        ("training loss", "loss", [run.updates for run in runs]),
        ("validation loss", "val_loss", [run.validations for run in runs]),
    ):
        if chart := _chart(title, name, runs, tables, shown.width):
            lines += [chart, ""]
    for part in parts_after_curves(runs):
        lines += [*_part(part, shown.width), ""]
    return "\n".join(lines[:-1])


def _part(part: Part, width: int) -> Iterator[str]:
    yield part.title
    if part.rows:
        columns = len(part.rows[0])
        table = text_table(part.rows, left=range(columns) if part.words else (0,))
        fits = all(len(line) + 2 <= width for line in table)
        yield from (f"  {line}".rstrip() for line in (table if fits else _listed(part.rows)))
    for note in part.notes:
        if note.startswith(" "):  # a command, which is not folded
            yield note
        else:
            yield from textwrap.wrap(
                note, width, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
            )


def _listed(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows of a table that is too wide: a line a cell below the name of the row."""
    head, *rest = rows
    for name, *cells in rest:
        yield name
        labels = head[1:]
        margin = max(map(len, labels))
        yield from (f"  {label:<{margin}}  {cell}" for label, cell in zip(labels, cells, strict=True))


def _chart(title: str, name: str, runs: Sequence[ComparedRun], tables: Sequence[Metrics], width: int) -> str:
    """The curves of a column over steps, or over tokens where runs take other numbers of them a step.

    Empty where not every run has two values.
    """
    over_tokens = len({run.tokens_per_step for run in runs}) > 1
    logged = [
        _points(table, name, run.tokens_per_step if over_tokens else 1)
        for run, table in zip(runs, tables, strict=True)
    ]
    curves = [means(points, width) for points in logged]
    if any(len(points) < 2 for points in curves):
        return ""
    values = np.sort([up for points in curves for _, up in points])
    shown = values[values <= values[0] + _FALL * (np.median(values) - values[0] or 1.0)]
    label = "tokens" if over_tokens else "step"
    across = axis((x for points in logged for x, _ in points), label, whole=True, margin=0.0)
    legend = "   ".join(f"{run.letter} {name}" for run, name in zip(runs, short_names(runs), strict=True))
    return text_chart(
        f"{title}   {legend}   {_MEETING} several",
        across,
        axis(shown.tolist(), "nats"),
        [(run.letter, points) for run, points in zip(runs, curves, strict=True)],
        width=width,
        meeting=_MEETING,
    )


def _points(table: Metrics, name: str, scale: int) -> list[Point]:
    if name not in table:
        return []
    return [
        (float(step) * scale, float(value))
        for step, value in zip(table["step"], table[name], strict=True)
        if np.isfinite(value)
    ]
