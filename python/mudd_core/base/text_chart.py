"""Line charts as lines of characters, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mudd_core.base.chart import Axis, Point, number

COLUMNS, ROWS = 64, 14  # of the area inside the axes


def text_chart(title: str, x: Axis, y: Axis, series: Sequence[tuple[str, Sequence[Point]]]) -> str:
    """The points of each (mark, points) in their order, later ones over earlier ones, with the ends of both axes."""
    cells = [[" "] * COLUMNS for _ in range(ROWS)]
    for mark, points in series:
        for across, up in points:
            if math.isfinite(up):
                column = min(COLUMNS - 1, max(0, round(x.share(across) * (COLUMNS - 1))))
                row = min(ROWS - 1, max(0, round((1 - y.share(up)) * (ROWS - 1))))
                cells[row][column] = mark
    labels = {0: number(y.high), ROWS // 2: number((y.low + y.high) / 2), ROWS - 1: number(y.low)}
    if y.log:
        labels[ROWS // 2] = number(math.sqrt(y.low * y.high))
    width = max(map(len, labels.values()))
    lines = [title, *(f"{labels.get(i, ''):>{width}} |{''.join(row)}" for i, row in enumerate(cells))]
    first, last = number(x.low), number(x.high)
    under = f"{first}{x.label:^{COLUMNS - len(first) - len(last)}}{last}"
    return "\n".join(
        [*(line.rstrip() for line in lines), f"{'':>{width}} +{'-' * COLUMNS}", f"{'':>{width + 2}}{under}"]
    )
