"""A chart of curves and dots: an SVG for each choice of the x axis, and the values that the pointer shows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from mudd_core.base.show.chart import Axis, axis, labelled
from mudd_core.base.show.printable import escaped
from mudd_core.base.types import Json
from mudd_core.run.report.page.elements import data, short
from mudd_core.run.report.page.records import Places
from mudd_core.run.report.page.series import COLORS, DESCRIBED, WHOLE, Mark, Series

Rows: TypeAlias = "Sequence[tuple[float, str]]"  # values with a horizontal grid line, and their labels

_SIZE = 1000  # width and height of the SVG in its units; the page stretches it


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    unit: str = "",
    log: bool = False,
    marks: Sequence[Mark] = (),
    note: str = "",
    wide: bool = False,
    ends: Places | None = None,
    lanes: bool = False,
    covers: Sequence[float] = (),
) -> str:
    """Return the HTML of a chart of all series over the same axes; '' if no series has a finite value.

    unit: printed after the values, such as "nats" or "%". log: use a logarithmic y axis; all values must be positive.
    note: a sentence below the chart. wide: span both columns of the page. ends: further x coordinates that the axis
    must cover. lanes: draw each series in a horizontal lane, with its name on the left; its values are the index of
    the lane from below. covers: values that the y axis must cover, all finite ones by default; points outside the axis
    are drawn at its edge. The x axes are the `places` of the first series.
    """
    shown = [one.thinned() for one in series if np.isfinite(one.values).any()]
    if not shown:
        return ""
    finite = np.concatenate([one.values[np.isfinite(one.values)] for one in shown])
    up = axis(_apart(covers or [float(finite.min()), float(finite.max())]), unit, log=log)
    rows: Rows = labelled(up.ticks(4))
    if lanes:
        up, rows = Axis(-0.5, len(shown) - 0.5, ""), [(float(one.values[0]), one.name) for one in shown]
    across = {name: _range(shown, marks, ends, name) for name in shown[0].places}
    drawn = [replace(one, dots=True) if np.isfinite(one.values).sum() == 1 else one for one in shown]
    views = "".join(
        _view(drawn, marks, (place, name), across[name], up, rows) for place, name in enumerate(across)
    )
    kinds = " ".join(["chart", *(["wide-chart"] if wide else []), *(["lanes"] if lanes else [])])
    style = f"--label:{max(len(words) for _, words in rows)}" + (f";--lanes:{len(shown)}" if lanes else "")
    return (
        f'<figure class="{kinds}" style="{style}"><figcaption>{_heading(title, unit)}{"" if lanes else _legend(shown)}'
        f'</figcaption><div class="plot" tabindex="0" role="img" aria-label="{escaped(_summary(title, shown, unit))}">'
        f'{views}{_left_labels(up, rows)}<div class="cursor" hidden></div><div class="tip" hidden></div></div>'
        f"{data(_values(shown, marks, across, unit))}"
        f"{f'<p class=note>{escaped(note)}</p>' if note else ''}</figure>"
    )


def _apart(values: Sequence[float]) -> list[float]:
    """Return the ends of the values; for equal values ends around them, so that the labels of the axis are short."""
    low, high = min(values), max(values)
    room = 0.05 * abs(low) if low == high else 0.0
    return [low - room, high + room]


def _range(series: Sequence[Series], marks: Sequence[Mark], ends: Places | None, name: str) -> Axis:
    found = [float(one.places[name][place]) for one in series for place in (0, -1) if len(one.values)]
    more = [] if ends is None else ends[name].tolist()
    return axis(
        [*found, *more, *(mark.places[name] for mark in marks)], name, whole=name in WHOLE, margin=0.0
    )


def _view(
    series: Sequence[Series], marks: Sequence[Mark], across: tuple[int, str], x: Axis, y: Axis, rows: Rows
) -> str:
    """Return the SVG for one choice of the x axis, and the labels below it. across: its index and name."""
    place, name = across
    lines = [f"M0 {_down(y, tick)}H{_SIZE}" for tick, _ in rows]
    parts = [f'<path class="grid" d="{"".join(lines)}"/>']
    if marks:
        places = sorted({_right(x, mark.places[name]) for mark in marks})
        parts.append(f'<path class="mark" d="{"".join(f"M{at} 0V{_SIZE}" for at in places)}"/>')
    for index, one in enumerate(series):
        if one.spread is not None:
            parts.append(f'<path class="band c{_color(one, index)}" d="{_band(one, name, x, y)}"/>')
        kind = "dot" if one.dots else "line"
        path = _dots(one, name, x, y) if one.dots else _line(one, name, x, y)
        parts.append(f'<path class="{kind} c{_color(one, index)}" d="{path}"/>')
    labels = "".join(
        f'<span style="left:{100 * x.share(tick):.1f}%">{words}</span>'
        for tick, words in labelled(x.ticks(5))
    )
    return (
        f'<div class="view x{place}"><svg viewBox="0 0 {_SIZE} {_SIZE}" preserveAspectRatio="none" '
        f'aria-hidden="true">{"".join(parts)}</svg><div class="below">{labels}</div></div>'
    )


def _points(one: Series, name: str, x: Axis, y: Axis) -> Iterator[tuple[int, int] | None]:
    """Yield the position of each value in the SVG; None for a gap in the curve."""
    for across, value in zip(one.places[name].tolist(), one.values.tolist(), strict=True):
        yield (_right(x, across), _down(y, value)) if math.isfinite(value) else None


def _line(one: Series, name: str, x: Axis, y: Axis) -> str:
    """Return the SVG path of a curve, in relative coordinates because these take fewer characters."""
    parts, before = [], None
    for point in _points(one, name, x, y):
        if point is not None and before is not None:
            right, down = point[0] - before[0], point[1] - before[1]
            parts.append(f"l{right}{'' if down < 0 else ' '}{down}")
        elif point is not None:
            parts.append(f"M{point[0]} {point[1]}h0")
        before = point
    return "".join(parts)


def _band(one: Series, name: str, x: Axis, y: Axis) -> str:
    """Return the SVG path of the area around a curve."""
    assert one.spread is not None
    rows = np.flatnonzero(np.isfinite(one.values) & np.isfinite(one.spread))
    upper = [(row, one.values[row] + one.spread[row]) for row in rows]
    lower = [(row, one.values[row] - one.spread[row]) for row in reversed(rows)]
    corners = (f"{_right(x, one.places[name][row])} {_down(y, value)}" for row, value in (*upper, *lower))
    return f"M{'L'.join(corners)}z" if rows.size else ""


def _dots(one: Series, name: str, x: Axis, y: Axis) -> str:
    """Return the SVG path of dots. Each dot is a line of length 0: its round caps stay round in a stretched SVG."""
    return "".join(f"M{point[0]} {point[1]}h0" for point in _points(one, name, x, y) if point is not None)


def _right(x: Axis, value: float) -> int:
    return round(_SIZE * min(1.0, max(0.0, x.share(value))))


def _down(y: Axis, value: float) -> int:
    return round(_SIZE * (1 - min(1.0, max(0.0, y.share(value)))))


def _left_labels(y: Axis, rows: Rows) -> str:
    places = ((100 * (1 - y.share(tick)), words) for tick, words in rows)
    spans = "".join(f'<span style="top:{at:.1f}%">{escaped(words)}</span>' for at, words in places)
    return f'<div class="left">{spans}</div>'


def _color(one: Series, index: int) -> int:
    return (index if one.color is None else one.color) % COLORS


def _heading(title: str, unit: str) -> str:
    small = f" <small>{escaped(unit)}</small>" if unit else ""
    return f"<h3>{escaped(title)}{small}</h3>"


def _legend(series: Sequence[Series]) -> str:
    if len(series) == 1 and not series[0].dots:
        return ""
    entries = (
        f'<span class="{"dot" if one.dots else "line"} c{_color(one, index)}">{escaped(one.name)}</span>'
        for index, one in enumerate(series)
    )
    return f'<div class="legend">{"".join(entries)}</div>'


def _summary(title: str, series: Sequence[Series], unit: str) -> str:
    """Return a sentence that describes the chart, for screen readers."""
    ends = []
    for one in series:
        values = one.values[np.isfinite(one.values)]
        ends.append(f"{one.name} from {values[0]:.4g} to {values[-1]:.4g} {unit}".rstrip())
    return f"{title}: {', '.join(ends)}. Arrow keys show the values."


def _values(series: Sequence[Series], marks: Sequence[Mark], across: Mapping[str, Axis], unit: str) -> Json:
    """Return the JSON that page.js needs to show values at the pointer: series, marks and the ends of the axes."""
    return {
        "across": [{"name": name, "text": DESCRIBED[name], "whole": name in WHOLE} for name in across],
        "ends": {name: [ends.low, ends.high] for name, ends in across.items()},
        "unit": unit,
        "series": [
            {
                "name": one.name,
                "color": _color(one, index),
                **({"texts": list(one.texts)} if one.texts else {}),
                "values": [short(value) for value in one.values.tolist()],
                **{name: [short(value, 9) for value in one.places[name].tolist()] for name in across},
            }
            for index, one in enumerate(series)
        ],
        "marks": [
            {"text": mark.text, **{name: short(mark.places[name], 9) for name in across}} for mark in marks
        ],
    }
