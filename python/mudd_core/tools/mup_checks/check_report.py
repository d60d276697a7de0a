"""What `mup check` prints and writes: the slopes, the verdict, two pictures, the numbers as HDF5."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mudd_core.base.regular_files import write_text
from mudd_core.base.show.chart import COLORS, Chart, axis
from mudd_core.config import Config
from mudd_core.engine.mup_statistics import STATISTICS
from mudd_core.tools.mup_checks.check import BOUND, STEPS, Coordinates, Wider

_SHOWN = 12


def report(members: Sequence[Config], found: Coordinates, learned: Wider | None, out: Path) -> int:
    """Prints the verdict, writes the files into `out`; 0 if all holds, else 1."""
    out.mkdir(parents=True, exist_ok=True)
    widths = ", ".join(map(str, found.widths))
    config = members[0]
    seeds = next(iter(found.changes.values())).shape[2]
    print(
        f"coordinate check over widths {widths}, {seeds} seeds: rule {config.optim.rule}, {config.optim.name}, ",
        end="",
    )
    print(f"rate {config.optim.lr:g}, u_init {getattr(config.model, 'u_init', '')}")
    print(slope_table(found))
    bad = found.failures()
    for name, step, slope in bad[:_SHOWN]:
        print(f"  FAIL {name} after {step} updates: slope {slope:+.3f}, expected within {BOUND:g} of 0")
    if len(bad) > _SHOWN:
        print(f"  ... and {len(bad) - _SHOWN} more")
    worse = learned.failures() if learned else []
    if learned:
        told = f"wider is better, steps {learned.warmup + 1} to {learned.losses.shape[2]} on one batch: final losses "
        final = learned.losses.mean(axis=1)[:, -1]
        print(
            told
            + ", ".join(f"{loss:.4f} ({width})" for width, loss in zip(learned.widths, final, strict=True))
        )
    for narrow, wide, step, excess, allowed in worse[:_SHOWN]:
        told = f"two standard errors {allowed:.4f}"
        print(f"  FAIL width {wide} is {excess:.4f} above width {narrow} at step {step}, {told}")
    if len(worse) > _SHOWN:
        print(f"  ... and {len(worse) - _SHOWN} more")
    for path in write(found, learned, out):
        print(f"  {path}")
    passed = not bad and not worse
    print("mup check: passed" if passed else "mup check: FAILED")
    return 0 if passed else 1


def slope_table(found: Coordinates) -> str:
    """For each statistic and step the slope that is farthest from zero, over the blocks."""
    slopes = found.slopes()
    lines = [
        "  statistic "
        + "".join(f"   t = {step}" for step in STEPS)
        + "   (slope of log2 change by log2 width)"
    ]
    for statistic in (*STATISTICS, "logits"):
        row = []
        for step in STEPS:
            mine = [
                s for (name, t), (s, _) in slopes.items() if t == step and name.partition("_")[0] == statistic
            ]
            row.append(max(mine, key=lambda s: abs(s) if math.isfinite(s) else math.inf))
        lines.append(f"  {statistic:<10}" + "".join(f"  {slope:+.3f}" for slope in row))
    return "\n".join(lines)


def write(found: Coordinates, learned: Wider | None, out: Path) -> list[Path]:
    """coordinates.svg, wider.svg and check.h5; returns their paths."""
    paths = [out / "coordinates.svg", out / "check.h5"]
    write_text(paths[0], coordinate_picture(found))
    if learned:
        paths.insert(1, out / "wider.svg")
        write_text(paths[1], wider_picture(learned))
    _write_h5(found, learned, out / "check.h5")
    return paths


def coordinate_picture(found: Coordinates) -> str:
    """Mean change after four updates against width, one curve a statistic (mean over blocks and seeds)."""
    curves = {}
    for statistic in (*STATISTICS, "logits"):
        mine = [
            c[-1].mean(axis=1) for name, c in found.changes.items() if name.partition("_")[0] == statistic
        ]
        curves[statistic] = np.mean(mine, axis=0)
    every = [float(value) for curve in curves.values() for value in curve]
    chart = Chart(
        f"Coordinate check: change after {STEPS[-1]} updates",
        axis(found.widths, "width", log=True),
        axis(every, "mean |z(t) - z(0)|", log=True),
    )
    for place, (name, curve) in enumerate(curves.items()):
        color = COLORS[place % len(COLORS)]
        points = list(zip(map(float, found.widths), map(float, curve), strict=True))
        chart.line(points, color, dashed=place >= len(COLORS))
        chart.text(chart.x(points[0][0]) + 4, chart.y(points[0][1]) - 4, name, size=11, color=color)
    return chart.finish()


def wider_picture(learned: Wider) -> str:
    """Loss against step, one curve a width, bands of one standard error."""
    mean, seeds = learned.losses.mean(axis=1), learned.losses.shape[1]
    error = learned.losses.std(axis=1, ddof=1) / math.sqrt(seeds)
    steps = range(1, mean.shape[1] + 1)
    chart = Chart(
        "Wider is better: loss on one batch", axis(steps, "step"), axis(mean.ravel(), "loss, nats", log=True)
    )
    for place, width in enumerate(learned.widths):
        color = COLORS[place % len(COLORS)]
        low, high = mean[place] - error[place], mean[place] + error[place]
        chart.band(list(zip(steps, low.tolist(), high.tolist(), strict=True)), color)
        chart.line(list(zip(map(float, steps), mean[place].tolist(), strict=True)), color)
        chart.legend(f"width {width}", color)
    return chart.finish()


def _write_h5(found: Coordinates, learned: Wider | None, path: Path) -> None:
    from mudd_core import _h5

    path.unlink(missing_ok=True)
    arrays = {f"change_{name}": array for name, array in found.changes.items()}
    axes = dict.fromkeys(arrays, "step, width, seed")
    if learned:
        arrays["losses"], axes["losses"] = learned.losses, "width, seed, step"
    arrays["widths"], axes["widths"] = np.array(found.widths), "width"
    with _h5.File.create(str(path)) as file:
        for name, array in arrays.items():
            file.create_dataset(name, np.dtype(np.float64), array.size)
            file.write(name, np.ascontiguousarray(array, np.float64).ravel())
        shapes = {name: {"shape": list(array.shape), "axes": axes[name]} for name, array in arrays.items()}
        file.set_text("shapes", json.dumps(shapes))
        file.set_text("steps", json.dumps(list(STEPS)))
