"""Heat maps as SVG from the standard library alone: panels of coloured cells with one scale, rows downwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

CELL, GAP, LEFT, TOP, BAR = 13, 34, 56, 64, 120
TITLE, STEPS = 170, 9  # width of a title; cells of the scale
INK, EMPTY = "#333333", "#f4f4f4"
# Blue below zero, white at zero, red above: readable without colour vision, the ends of equal darkness.
_BELOW, _ABOVE = (33, 102, 172), (178, 24, 43)


@dataclass(frozen=True)
class Panel:
    """A matrix with a title; None: no such cell."""

    title: str
    rows: Sequence[Sequence[float | None]]


def color(value: float, largest: float) -> str:
    """Colour of a value on the scale from -largest to largest."""
    share = max(-1.0, min(1.0, value / largest if largest else 0.0))
    end = _ABOVE if share >= 0 else _BELOW
    mix = abs(share) ** 0.6  # small values stay visible beside one large
    return "#" + "".join(f"{round(255 + (part - 255) * mix):02x}" for part in end)


def svg(title: str, groups: Sequence[Sequence[Panel]], *, x_label: str, y_label: str) -> str:
    """One line of panels for each group, each group with its own scale."""
    columns = max(len(group) for group in groups)
    wide = max(TITLE, CELL * max(len(row) for group in groups for panel in group for row in panel.rows))
    high = [CELL * max(STEPS, *(len(panel.rows) for panel in group)) for group in groups]
    width = LEFT + columns * (wide + GAP) + BAR
    height = TOP + sum(h + GAP + 30 for h in high)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11" fill="{INK}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>',
        f'<text x="{LEFT}" y="40">{escape(x_label)}; {escape(y_label)}</text>',
    ]
    top = TOP
    for group, tall in zip(groups, high, strict=True):
        values = _values(group)
        largest = max(map(abs, values), default=0.0)
        for index, panel in enumerate(group):
            out += _panel(panel, LEFT + index * (wide + GAP), top, largest)
        low = -largest if min(values, default=0.0) < 0 else 0.0
        out += _scale(LEFT + columns * (wide + GAP), top, low, largest)
        top += tall + GAP + 30
    return "\n".join([*out, "</svg>"]) + "\n"


def _values(group: Sequence[Panel]) -> list[float]:
    return [v for panel in group for row in panel.rows for v in row if v is not None and math.isfinite(v)]


def _panel(panel: Panel, left: int, top: int, largest: float) -> list[str]:
    out = [f'<text x="{left}" y="{top - 8}" font-size="12">{escape(panel.title)}</text>']
    for r, row in enumerate(panel.rows):
        if r % 4 == 0:
            out.append(f'<text x="{left - 6}" y="{top + r * CELL + 10}" text-anchor="end">{r}</text>')
        for c, value in enumerate(row):
            if value is None:
                continue
            fill = color(value, largest) if math.isfinite(value) else "#ffff00"
            out.append(
                f'<rect x="{left + c * CELL}" y="{top + r * CELL}" width="{CELL}" height="{CELL}" fill="{fill}" '
                f'stroke="{EMPTY}"><title>{escape(panel.title)} {r}, {c}: {value:.4g}</title></rect>'
            )
    below = top + len(panel.rows) * CELL + 12
    for c in range(0, max(len(row) for row in panel.rows), 4):
        out.append(f'<text x="{left + c * CELL + 2}" y="{below}">{c}</text>')
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
            out.append(f'<text x="{left + CELL + 4}" y="{at + 10}">{value:.3g}</text>')
    return out
