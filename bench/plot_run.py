"""The loss curve of a run as an SVG picture, from its metrics.jsonl and nothing but the standard library.

python bench/plot_run.py runs/small --out docs/loss_small.svg
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 48, 52
TRAIN, MEAN, VALID, GRID, INK = "#b8c7e0", "#2457a6", "#c4472b", "#e6e6e6", "#333333"

Point = tuple[float, float]


def read(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Training rows and validation rows; of a step that a resume took again, the last."""
    train: dict[int, dict[str, Any]] = {}
    valid: dict[int, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        (valid if "val_loss" in row else train)[row["step"]] = row
    return [train[step] for step in sorted(train)], [valid[step] for step in sorted(valid)]


def ticks(low: float, high: float, wanted: int) -> list[float]:
    """About `wanted` round numbers from low to high."""
    rough = (high - low) / wanted
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 2.5, 5, 10) if unit * m >= rough)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def running_mean(points: list[Point], rows: int) -> list[Point]:
    """Mean of the last `rows` points at each, of fewer at the beginning."""
    means = []
    for i, (x, _) in enumerate(points):
        part = points[max(0, i + 1 - rows) : i + 1]
        means.append((x, sum(y for _, y in part) / len(part)))
    return means


class Picture:
    """Axes from numbers to pixels, and the pieces drawn so far."""

    def __init__(self, title: str, x_end: float, y_low: float, y_high: float) -> None:
        self.x_end, self.y_low, self.y_high = x_end, y_low, y_high
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="13">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        ]
        self.text(LEFT, 26, title, size=16)

    def x(self, value: float) -> float:
        """Pixel column."""
        return LEFT + value / self.x_end * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Pixel row."""
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def text(
        self, x: float, y: float, words: str, *, anchor: str = "start", size: int = 13, color: str = INK
    ) -> None:
        """A line of text at pixels."""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{color}">'
            f"{escape(words)}</text>"
        )

    def axes(self, x_label: str, y_label: str) -> None:
        """Grid, numbers and names of both axes."""
        for value in ticks(self.y_low, self.y_high, 6):
            at = self.y(value)
            self.parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
            self.text(LEFT - 8, at + 4, f"{value:g}", anchor="end")
        for value in ticks(0, self.x_end, 7):
            self.text(self.x(value), HEIGHT - BOTTOM + 18, f"{value:g}", anchor="middle")
        self.parts.append(f'<path d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}" stroke="{INK}"/>')
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_label, anchor="middle")
        self.parts.append(f'<g transform="rotate(-90 18 {HEIGHT / 2})">')
        self.text(18, HEIGHT / 2, y_label, anchor="middle")
        self.parts.append("</g>")

    def line(self, points: list[Point], color: str, width: float) -> None:
        """A polyline."""
        path = " ".join(f"{self.x(x):.1f},{self.y(min(y, self.y_high)):.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width}"/>')

    def dots(self, points: list[Point], labels: list[str], color: str) -> None:
        """A dot for each point, with its label below."""
        for (x, y), label in zip(points, labels, strict=True):
            self.parts.append(f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="4.5" fill="{color}"/>')
            near_end = x > 0.9 * self.x_end
            self.text(self.x(x), self.y(y) + 20, label, anchor="end" if near_end else "middle", color=color)

    def finish(self) -> str:
        """The whole file."""
        return "\n".join([*self.parts, "</svg>", ""])


def draw(folder: Path) -> str:
    """The picture of the run in a work directory."""
    train, valid = read(folder / "metrics.jsonl")
    config = json.loads((folder / "config.json").read_text())
    tokens_per_step = train[0]["tokens"] / train[0]["step"]
    losses = [(row["tokens"] / 1e6, row["loss"]) for row in train if row["loss"] is not None]
    checked = [(row["step"] * tokens_per_step / 1e6, row["val_loss"]) for row in valid]
    seen = [y for _, y in [*losses, *checked]]
    picture = Picture(
        title(config, train, valid), losses[-1][0], math.floor(min(seen) - 0.3), math.ceil(max(seen))
    )
    picture.axes("tokens seen (millions)", "loss (nats per token)")
    picture.line(losses, TRAIN, 1.2)
    picture.line(running_mean(losses, 10), MEAN, 2.2)
    picture.dots(checked, [f"{row['val_bits_per_byte']:.3f} bits per byte" for row in valid], VALID)
    legend = [("training batch", TRAIN), ("mean of ten rows", MEAN), ("held-out text", VALID)]
    for i, (words, color) in enumerate(legend):
        picture.text(WIDTH - RIGHT - 10, TOP + 20 + 18 * i, words, anchor="end", color=color)
    return picture.finish()


def title(config: dict[str, Any], train: list[dict[str, Any]], valid: list[dict[str, Any]]) -> str:
    """Name of the run, its time and its result."""
    minutes = max(row["seconds"] for row in train) / 60
    result = f", {valid[-1]['val_bits_per_byte']:.3f} bits per byte on held-out text" if valid else ""
    return f"{config.get('name', 'run')}: {train[-1]['step']} steps in {minutes:.1f} minutes{result}"


def main() -> None:
    """Reads a work directory, writes the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workdir", type=Path, help="a run's work directory")
    parser.add_argument("--out", type=Path, required=True, help="the SVG file to write")
    asked = parser.parse_args()
    asked.out.write_text(draw(asked.workdir))
    print(f"wrote {asked.out}")


if __name__ == "__main__":
    main()
