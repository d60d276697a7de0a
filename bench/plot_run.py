"""Draw the loss curve of a run as an SVG picture, from its metrics.jsonl.

python bench/plot_run.py runs/small --out docs/loss_small.svg
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from mudd_core.base.show.chart import BOTTOM, HEIGHT, Axis, Chart, Point

TRAIN, MEAN, VALID = "#b8c7e0", "#2457a6", "#c4472b"


def read(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the training and the validation entries.

    For a step that a resume repeated, only the last entry is returned.
    """
    train: dict[int, dict[str, Any]] = {}
    valid: dict[int, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        (valid if "val_loss" in row else train)[row["step"]] = row
    return [train[step] for step in sorted(train)], [valid[step] for step in sorted(valid)]


def running_mean(points: list[Point], rows: int) -> list[Point]:
    """Return the mean of the last `rows` points at each point; at the start there are fewer points."""
    means = []
    for i, (x, _) in enumerate(points):
        part = points[max(0, i + 1 - rows) : i + 1]
        means.append((x, sum(y for _, y in part) / len(part)))
    return means


def draw(folder: Path) -> str:
    """Return the picture of the run in a work directory."""
    train, valid = read(folder / "metrics.jsonl")
    config = json.loads((folder / "config.json").read_text())
    tokens_per_step = train[0]["tokens"] / train[0]["step"]
    losses = [(row["tokens"] / 1e6, row["loss"]) for row in train if row["loss"] is not None]
    checked = [(row["step"] * tokens_per_step / 1e6, row["val_loss"]) for row in valid]
    seen = [y for _, y in [*losses, *checked]]
    chart = Chart(
        title(config, train, valid),
        Axis(0.0, losses[-1][0], "tokens seen (millions)"),
        Axis(math.floor(min(seen)) - 1.0, math.ceil(max(seen)), "loss (nats per token)"),
    )
    chart.line(losses, TRAIN, 1.2)
    chart.line(running_mean(losses, 10), MEAN, 2.2)
    chart.dots(checked, VALID)
    # The labels are above the axis, clear of the curves.
    for place, (x, loss) in enumerate(checked):
        anchor = "end" if place == len(checked) - 1 else "middle"
        chart.text(chart.x(x), HEIGHT - BOTTOM - 10, f"{loss:.2f}", anchor=anchor, color=VALID)
    for words, color in (
        ("training batch", TRAIN),
        ("mean of ten log entries", MEAN),
        ("held-out text, values above the axis", VALID),
    ):
        chart.legend(words, color)
    return chart.finish()


def title(config: dict[str, Any], train: list[dict[str, Any]], valid: list[dict[str, Any]]) -> str:
    """Return the title: the name of the run, its tokens, and its result in the unit of the axis."""
    result = f", {valid[-1]['val_loss']:.2f} nats per token on held-out text" if valid else ""
    read = f"{train[-1]['step']:,} steps, {train[-1]['tokens'] / 1e6:.1f} million tokens"
    return f"{config.get('name', 'run')}: {read}{result}"


def main() -> None:
    """Read a work directory and write the picture."""
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
