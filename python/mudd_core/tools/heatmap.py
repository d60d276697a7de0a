"""Heat maps as SVG, written with only the standard library: panels of named, coloured cells with one scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

CELL, GAP, MARGIN, TOP, BAR = 26, 34, 16, 64, 120
TITLE, STEPS = 170, 9  # width of a title; cells of the scale
LETTER, LINE = 6.2, 14  # width of a character and height of a line in the names
INK, EMPTY = "#333333", "#f4f4f4"
# Blue below zero, white at zero, red above: readable without colour vision, the ends of equal darkness.
_BELOW, _ABOVE = (33, 102, 172), (178, 24, 43)


@dataclass(frozen=True)
class Panel:
    """A matrix with a title; None leaves a cell empty."""

    title: str
    rows: Sequence[Sequence[float | None]]


def color(value: float, largest: float) -> str:
    """Return the colour of a value on the scale from -largest to largest."""
    share = max(-1.0, min(1.0, value / largest if largest else 0.0))
    end = _ABOVE if share >= 0 else _BELOW
    mix = abs(share) ** 0.6  # small values stay visible next to large ones
    return "#" + "".join(f"{round(255 + (part - 255) * mix):02x}" for part in end)


def svg(
    title: str,
    groups: Sequence[Sequence[Panel]],
    *,
    x_label: str,
    y_label: str,
    row_names: Sequence[str] = (),
    column_names: Sequence[str] = (),
) -> str:
    """Return an SVG image with a line of panels for each group. Each group has its own color scale.

    row_names, column_names: a name for each row and column of the largest panel; by default, numbers.
    """
    panels = [panel for group in groups for panel in group]
    rows = _names(row_names, max(len(panel.rows) for panel in panels))
    columns = _names(column_names, max(len(row) for panel in panels for row in panel.rows))
    left = MARGIN + _width(rows)
    under = _width(columns) if column_names else LINE
    across = max(TITLE, CELL * len(columns)) + GAP
    if row_names:
        across += _width(rows)
    many = max(len(group) for group in groups)
    high = [CELL * max(STEPS, *(len(panel.rows) for panel in group)) for group in groups]
    width = left + many * across + BAR
    height = TOP + sum(h + GAP + 10 + under for h in high)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11" fill="{INK}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{MARGIN}" y="22" font-size="15">{escape(title)}</text>',
        f'<text x="{MARGIN}" y="40">{escape(x_label)}; {escape(y_label)}</text>',
    ]
    top = TOP
    for group, tall in zip(groups, high, strict=True):
        values = _values(group)
        largest = max(map(abs, values), default=0.0)
        for index, panel in enumerate(group):
            out += _panel(panel, left + index * across, top, largest, rows, columns)
            out += _column_names(left + index * across, top + CELL * len(panel.rows), columns)
        low = -largest if min(values, default=0.0) < 0 else 0.0
        out += _scale(left + many * across, top, low, largest)
        top += tall + GAP + 10 + under
    return "\n".join([*out, "</svg>"]) + "\n"


def _names(names: Sequence[str], count: int) -> list[str]:
    """Return a name for each place: the given names, then numbers."""
    return [*names[:count], *(str(place) for place in range(len(names), count))]


def _width(names: Sequence[str]) -> int:
    """Return the room that the longest name needs, in pixels."""
    return 10 + math.ceil(LETTER * max(map(len, names), default=0))


def _values(group: Sequence[Panel]) -> list[float]:
    return [v for panel in group for row in panel.rows for v in row if v is not None and math.isfinite(v)]


def _panel(
    panel: Panel, left: int, top: int, largest: float, rows: Sequence[str], columns: Sequence[str]
) -> list[str]:
    out = [f'<text x="{left}" y="{top - 8}" font-size="12">{escape(panel.title)}</text>']
    for r, row in enumerate(panel.rows):
        middle = top + r * CELL + CELL // 2 + 4
        out.append(f'<text x="{left - 6}" y="{middle}" text-anchor="end">{escape(rows[r])}</text>')
        for c, value in enumerate(row):
            if value is None:
                continue
            fill = color(value, largest) if math.isfinite(value) else "#ffff00"
            place = escape(f"{panel.title} {rows[r]}, {columns[c]}")
            out.append(
                f'<rect x="{left + c * CELL}" y="{top + r * CELL}" width="{CELL}" height="{CELL}" fill="{fill}" '
                f'stroke="{EMPTY}"><title>{place}: {value:.4g}</title></rect>'
            )
    return out


def _column_names(left: int, top: int, names: Sequence[str]) -> list[str]:
    """Return the names below the columns: upright if all are short, else downwards."""
    out = []
    for c, name in enumerate(names):
        x = left + c * CELL + CELL // 2
        if max(map(len, names)) <= 3:
            out.append(f'<text x="{x}" y="{top + LINE}" text-anchor="middle">{escape(name)}</text>')
        else:
            x, y = x - 4, top + 6
            out.append(f'<text x="{x}" y="{y}" transform="rotate(90 {x} {y})">{escape(name)}</text>')
    return out


def _scale(left: int, top: int, low: float, high: float) -> list[str]:
    out = []
    for step in range(STEPS):
        value = high + (low - high) * step / (STEPS - 1)
        at, fill = top + step * CELL, color(value, high)
        out.append(
            f'<rect x="{left}" y="{at}" width="{CELL}" height="{CELL}" fill="{fill}" stroke="{EMPTY}"/>'
        )
        if step % 4 == 0:
            out.append(f'<text x="{left + CELL + 4}" y="{at + CELL // 2 + 4}">{value:.3g}</text>')
    return out
