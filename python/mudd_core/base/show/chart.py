"""Line charts: SVG with curves, uncertainty bands, dots and a legend, and characters for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from mudd_core.base.show.printable import visible

Point = tuple[float, float]

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 48, 52
GRID, INK = "#e6e6e6", "#333333"
# Distinguishable with colour blindness too (Okabe and Ito, 2008), darkest first.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#555555", "#b8a000")


@dataclass(frozen=True)
class Axis:
    """A range and its name. log: a logarithmic axis of a positive range. whole: integer ticks, as for tokens."""

    low: float
    high: float
    label: str
    log: bool = False
    whole: bool = False

    def share(self, value: float) -> float:
        """Return the position of a value, from 0 (low) to 1 (high)."""
        low, high, at = (self._scaled(v) for v in (self.low, self.high, value))
        return (at - low) / (high - low) if high > low else 0.5

    def _scaled(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log else value

    def ticks(self, wanted: int = 6) -> list[float]:
        """Return about `wanted` round values in the range."""
        if self.log:
            return _log_ticks(self.low, self.high, wanted)
        return _ticks(self.low, self.high, wanted, self.whole)


def axis(
    values: Iterable[float], label: str, *, log: bool = False, whole: bool = False, margin: float = 0.04
) -> Axis:
    """Return an axis that contains all values up to 1e30 (if logarithmic, those above 1e-30) with a margin."""
    kept = [v for v in values if abs(v) <= 1e30 and (v >= 1e-30 or not log)]
    low, high = (min(kept), max(kept)) if kept else (0.0, 1.0)
    if log:
        room = max(high / low, 1.1) ** margin if kept else 1.0
        return Axis((low or 1.0) / room, (high or 1.0) * room, label, True)
    room = margin * max(high - low, 1e-6 * max(abs(low), abs(high))) or margin
    return Axis(low - (room if low else 0.0), high + room, label, whole=whole)


def _ticks(low: float, high: float, wanted: int, whole: bool = False) -> list[float]:
    rough = (high - low) / wanted or 1.0
    rough = max(rough, 1.0) if whole else rough
    unit = 10.0 ** math.floor(math.log10(rough))
    factors = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = next(unit * m for m in factors if unit * m >= rough * (1 - 1e-9))
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, wanted: int) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 3), (1, 2, 5)):
        found = [m * 10.0**e for e in decades for m in steps if low <= m * 10.0**e <= high]
        if len(found) >= 3:
            return found[:: -(-len(found) // (2 * wanted))]
    return _ticks(low, high, wanted)  # less than a decade


def number(value: float) -> str:
    """Return the label of a tick: 0.25, 40, 15k, 2M."""
    size = abs(float(f"{value:.4g}"))  # 999,999 becomes 1M
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if (9900 if unit == 1e3 else unit) <= size < 1e12:
            return f"{value / unit:.4g}{letter}"
    return f"{value:.4g}"


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Return the labels of the ticks, with enough digits to distinguish them."""
    labels = [number(tick) for tick in ticks]
    for digits in range(5, 16):
        if len(set(labels)) == len(set(ticks)):
            break
        labels = [f"{tick:.{digits}g}" for tick in ticks]
    return labels


def labelled(ticks: Sequence[float]) -> list[tuple[float, str]]:
    """Return each tick with its label."""
    return list(zip(ticks, tick_labels(ticks), strict=True))


class Chart:
    """Two axes and the drawing on them; finish() returns the file."""

    def __init__(self, title: str, x: Axis, y: Axis) -> None:
        self._x, self._y = x, y
        self._legend = 0
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="13">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        ]
        self.text(LEFT, 26, title, size=16)
        self._axes()

    def x(self, value: float) -> float:
        """Return the pixel column of a value; outside the range, the edge."""
        return LEFT + min(1.0, max(0.0, self._x.share(value))) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the pixel row of a value; outside the range, the edge."""
        return HEIGHT - BOTTOM - min(1.0, max(0.0, self._y.share(value))) * (HEIGHT - TOP - BOTTOM)

    def text(
        self, x: float, y: float, words: str, *, anchor: str = "start", size: int = 13, color: str = INK
    ) -> None:
        """Draw a line of text at pixels."""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{color}">'
            f"{escape(visible(words))}</text>"
        )

    def _axes(self) -> None:
        for value, words in labelled(self._y.ticks()):
            at = self.y(value)
            self.parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
            self.text(LEFT - 8, at + 4, words, anchor="end")
        for value, words in labelled(self._x.ticks(7)):
            at = self.x(value)
            self.parts.append(f'<path d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="{GRID}"/>')
            self.text(at, HEIGHT - BOTTOM + 18, words, anchor="middle")
        self.parts.append(f'<path d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}" stroke="{INK}"/>')
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, self._x.label, anchor="middle")
        self.parts.append(f'<g transform="rotate(-90 18 {HEIGHT / 2})">')
        self.text(18, HEIGHT / 2, self._y.label, anchor="middle")
        self.parts.append("</g>")

    def line(self, points: Sequence[Point], color: str, width: float = 2.0, *, dashed: bool = False) -> None:
        """Draw a polyline through the points with finite values."""
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points if math.isfinite(y))
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width}"{dash}/>'
        )

    def band(self, points: Sequence[tuple[float, float, float]], color: str) -> None:
        """Fill the area between (x, low) and (x, high)."""
        kept = [(x, a, b) for x, a, b in points if math.isfinite(a) and math.isfinite(b)]
        around = [(x, b) for x, _, b in kept] + [(x, a) for x, a, _ in reversed(kept)]
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in around)
        self.parts.append(f'<polygon points="{path}" fill="{color}" fill-opacity="0.15"/>')

    def dots(self, points: Sequence[Point], color: str, labels: Sequence[str] = ()) -> None:
        """Draw a dot for each point, with its label below."""
        for (x, y), label in zip(points, labels or [""] * len(points), strict=True):
            if not math.isfinite(y):
                continue
            self.parts.append(f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="4" fill="{color}"/>')
            if label:
                near_end = self._x.share(x) > 0.9
                self.text(
                    self.x(x), self.y(y) + 20, label, anchor="end" if near_end else "middle", color=color
                )

    def legend(self, words: str, color: str) -> None:
        """Add a line to the legend, top right."""
        self.text(WIDTH - RIGHT - 10, TOP + 20 + 18 * self._legend, words, anchor="end", color=color)
        self._legend += 1

    def finish(self) -> str:
        """Return the whole SVG file."""
        return "\n".join([*self.parts, "</svg>", ""])


COLUMNS, ROWS = 64, 14  # size of the area inside the axes
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
    """Return a chart of characters with the end values of both axes; later series of (mark, points) cover earlier ones.

    width: columns of the whole chart; 0: an area of COLUMNS. meeting: the mark of a cell that several series share. A
    series with the mark FINE is a line of braille dots, which only a UTF-8 terminal shows.
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
    if x.low == x.high:  # all points go to the middle
        under = f"{f'{x.label} {first}':^{columns}}".rstrip()
    return "\n".join(
        [*(line.rstrip() for line in lines), f"{'':>{margin}} +{'-' * columns}", f"{'':>{margin + 2}}{under}"]
    )


def means(points: Sequence[Point], most: int) -> list[Point]:
    """Return at most `most` points: means over groups of successive points, without NaN."""
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
    """Yield (column, row) on a grid for each finite point; outside the axes, the edge."""
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
    """Yield the cells of a straight line on a grid, including both ends."""
    (left, top), (right, bottom) = start, end
    steps = max(abs(right - left), abs(bottom - top), 1)
    for i in range(steps + 1):
        yield left + round(i * (right - left) / steps), top + round(i * (bottom - top) / steps)
