"""A heat map: a matrix of colored cells, with a slider if there are several steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mudd_core.base.show.chart import number
from mudd_core.base.show.printable import escaped
from mudd_core.base.types import Float64
from mudd_core.run.report.page.elements import data, short

MOST_NUMBERS = 20_000  # values of a map over all steps, about 100 kB; steps are left out to stay below
_LEVELS = 20  # opacity levels of a color, from transparent to full
_LABELS = 64  # labels on the left side, at most; page.css sets a cell's height to 26 px, which fits a label
_LETTERS = 44  # characters of all labels on the lower side, at most; they fit on a phone
_LONGEST = 16  # characters of a label on the left side


def heat_map(
    title: str,
    values: Float64,
    *,
    rows: Sequence[str],
    columns: Sequence[str],
    steps: Sequence[int] = (),
    middle: float | None = None,
    unit: str = "",
    note: str = "",
    wide: bool = False,
) -> str:
    """Return the HTML of values [rows, columns], or of [steps, rows, columns] with a slider; '' if none is finite.

    The slider starts at the last of `steps`. NaN leaves a cell empty. rows, columns: labels, such as "layer 3".
    middle: values below it get a second color; None if all values are at least 0. rows times columns must be at most
    MOST_NUMBERS.
    """
    frames = values if values.ndim == 3 else values[None]
    if not np.isfinite(frames).any():
        return ""
    assert frames[0].shape == (len(rows), len(columns)) and frames[0].size <= MOST_NUMBERS
    kept = _kept_frames(len(frames), frames[0].size)
    frames = frames[kept]
    middle_at = 0.0 if middle is None else middle
    largest = float(np.nanmax(np.abs(frames - middle_at))) or 1.0
    kinds = " ".join(["chart", "heat", *(["wide-chart"] if wide else [])])
    size = f"--rows:{len(rows)};--label:{min(_LONGEST, max(map(len, rows)))}"
    shown_steps = [steps[place] for place in kept] if steps else []
    return (
        f'<figure class="{kinds}" style="{size}">'
        f"<figcaption><h3>{escaped(title)}</h3>{_slider(shown_steps)}</figcaption>"
        f'<div class="plot" tabindex="0" role="img" aria-label="{escaped(title)}, {len(rows)} by {len(columns)}">'
        f'<svg viewBox="0 0 {len(columns)} {len(rows)}" preserveAspectRatio="none" aria-hidden="true">'
        f"{_cells(frames[-1], middle_at, largest)}</svg>{_labels(rows, 'left')}{_labels(columns, 'below')}"
        '<div class="tip" hidden></div></div>'
        f"{_scale(middle_at, largest, float(np.nanmin(frames)), unit)}"
        f"{_values(frames, rows, columns, shown_steps, middle_at, largest, unit)}"
        f"{f'<p class=note>{escaped(note)}</p>' if note else ''}</figure>"
    )


def _kept_frames(count: int, cells: int) -> list[int]:
    """Return the indices of the steps to keep: all, or as many as fit, evenly spaced and with the last one."""
    room = max(1, MOST_NUMBERS // cells)
    if count <= room:
        return list(range(count))
    return sorted({count - 1 - round(place * (count - 1) / max(1, room - 1)) for place in range(room)})


def _level(value: float, middle: float, largest: float) -> int:
    """Return the color level of a value, from -_LEVELS to _LEVELS."""
    # The square root keeps small values visible next to a large one.
    fraction = (value - middle) / largest
    return round(math.copysign(math.sqrt(min(1.0, abs(fraction))), fraction) * _LEVELS)


def _cells(frame: Float64, middle: float, largest: float) -> str:
    """Return an SVG path for each level that occurs; page.js draws the other steps in the same way."""
    paths: dict[int, list[str]] = {}
    for row, cells in enumerate(frame.tolist()):
        for column, value in enumerate(cells):
            if math.isfinite(value) and (level := _level(value, middle, largest)):
                paths.setdefault(level, []).append(f"M{column} {row}h1v1h-1z")
    return "".join(
        f'<path class="{"above" if level > 0 else "under"}" fill-opacity="{abs(level) / _LEVELS:g}" '
        f'd="{"".join(cells)}"/>'
        for level, cells in sorted(paths.items())
    )


def _labels(names: Sequence[str], side: str) -> str:
    room = _LABELS if side == "left" else max(1, _LETTERS // max(map(len, names)))
    every = -(-len(names) // room)
    start = "top" if side == "left" else "left"
    spans = (
        f'<span style="{start}:{100 * (place + 0.5) / len(names):.1f}%">{escaped(name)}</span>'
        for place, name in enumerate(names)
        if place % every == 0
    )
    return f'<div class="{side}">{"".join(spans)}</div>'


def _slider(steps: Sequence[int]) -> str:
    if len(steps) < 2:
        return ""
    last = len(steps) - 1
    return (
        f'<label class="slider"><input type="range" min="0" max="{last}" value="{last}" aria-label="step">'
        f"<output>step {steps[-1]:,}</output></label>"
    )


def _scale(middle: float, largest: float, least: float, unit: str) -> str:
    """Return the color scale, from the smallest value to the largest that a cell can have."""
    ends = f"<span>{number(min(least, middle))}</span><i></i><span>{number(middle + largest)} {escaped(unit)}</span>"
    below = max(0.0, middle - least)
    if not below:
        return f'<div class="scale">{ends}</div>'
    low, at = 100 * math.sqrt(below / largest), 100 * below / (below + largest)
    return f'<div class="scale signed" style="--low:{low:.0f}%;--middle:{at:.0f}%">{ends}</div>'


def _values(
    frames: Float64,
    rows: Sequence[str],
    columns: Sequence[str],
    steps: Sequence[int],
    middle: float,
    largest: float,
    unit: str,
) -> str:
    return data(
        {
            "rows": list(rows),
            "columns": list(columns),
            "steps": list(steps),
            "frames": [[short(value, 4) for value in frame.ravel().tolist()] for frame in frames],
            "middle": middle,
            "largest": largest,
            "levels": _LEVELS,
            "unit": unit,
        }
    )
