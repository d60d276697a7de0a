"""Line charts as lines of characters, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from mudd_core.base.show.chart import Axis, Point, tick_labels

COLUMNS, ROWS = 64, 14  # of the area inside the axes
FINE = ""  # the mark of a series that is drawn as a line of braille dots
_DOTS = (
    (0x01, 0x08),
    (0x02, 0x10),
    (0x04, 0x20),
    (0x40, 0x80),
)  # bits of a braille character by row and column
_EMPTY_BRAILLE = 0x2800
_LEAST_COLUMNS = 20


def text_chart(
    title: str,
    x: Axis,
    y: Axis,
    series: Sequence[tuple[str, Sequence[Point]]],
    *,
    width: int = 0,
    meeting: str = "",
) -> str:
    """The points of each (mark, points) in their order, later ones over earlier ones, with the ends of both axes.

    width: columns of the whole chart; 0: an area of COLUMNS. meeting: the mark where several series meet. A series
    with the mark FINE is a line of braille dots, which fits a terminal with UTF-8 alone.
    """
    middle = math.sqrt(y.low * y.high) if y.log else (y.low + y.high) / 2
    labels = dict(zip((0, ROWS // 2, ROWS - 1), tick_labels((y.high, middle, y.low)), strict=True))
    margin = max(map(len, labels.values()))
    columns = max(_LEAST_COLUMNS, width - margin - 2) if width else COLUMNS
    cells = [[" "] * columns for _ in range(ROWS)]
    owners: dict[tuple[int, int], int] = {}
    for index, (mark, points) in enumerate(series):
        if mark == FINE:
            _draw_line(cells, x, y, points)
            continue
        for column, row in _places(x, y, points, columns, ROWS):
            met = meeting and owners.setdefault((column, row), index) != index
            cells[row][column] = meeting if met else mark
    lines = [title, *(f"{labels.get(i, ''):>{margin}} |{''.join(row)}" for i, row in enumerate(cells))]
    first, last = tick_labels((x.low, x.high))
    under = f"{first}{x.label:^{columns - len(first) - len(last)}}{last}"
    if x.low == x.high:  # all points are in the middle
        under = f"{f'{x.label} {first}':^{columns}}".rstrip()
    return "\n".join(
        [*(line.rstrip() for line in lines), f"{'':>{margin}} +{'-' * columns}", f"{'':>{margin + 2}}{under}"]
    )


def means(points: Sequence[Point], most: int) -> list[Point]:
    """Return at most so many points: means over groups of points that follow one another, NaN left out."""
    group = max(1, -(-len(points) // most))
    found = []
    for begin in range(0, len(points), group):
        kept = [(across, up) for across, up in points[begin : begin + group] if math.isfinite(up)]
        if kept:
            found.append(
                (math.fsum(a for a, _ in kept) / len(kept), math.fsum(u for _, u in kept) / len(kept))
            )
    return found


def _places(x: Axis, y: Axis, points: Sequence[Point], columns: int, rows: int) -> Iterator[tuple[int, int]]:
    """(column, row) of each finite point on a grid; beyond the axes, the edge."""
    for across, up in points:
        if math.isfinite(up):
            column = min(columns - 1, max(0, round(x.share(across) * (columns - 1))))
            yield column, min(rows - 1, max(0, round((1 - y.share(up)) * (rows - 1))))


def _draw_line(cells: list[list[str]], x: Axis, y: Axis, points: Sequence[Point]) -> None:
    """Draw a line through the points, eight braille dots a cell."""
    before: tuple[int, int] | None = None
    for place in _places(x, y, points, 2 * len(cells[0]), 4 * len(cells)):
        for column, row in _between(before or place, place):
            old = cells[row // 4][column // 2]
            bits = ord(old) if old != " " else _EMPTY_BRAILLE
            cells[row // 4][column // 2] = chr(bits | _DOTS[row % 4][column % 2])
        before = place


def _between(start: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The places of a straight line on a grid, both ends included."""
    (left, top), (right, bottom) = start, end
    steps = max(abs(right - left), abs(bottom - top), 1)
    for i in range(steps + 1):
        yield left + round(i * (right - left) / steps), top + round(i * (bottom - top) / steps)
