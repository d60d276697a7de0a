"""Coordinate check and wider-is-better (Yang et al. 2022, appendix D.1).

Coordinates: after 2 to 4 updates the slope of log2 mean|z(t) - z(0)| against log2 width is in [-0.1, 0.1] for every
statistic of every block and for the logits, over all widths and seeds. The vocabulary is small (a chain over eight
ids). The scaling of updates holds in the limit of many channels and few directions, and narrow models reach this limit
only with a small vocabulary. Wider is better: on one repeated batch, the loss of each width is at most the loss of the
next narrower width plus two standard errors, at every step after warm-up.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mudd_core import _core
from mudd_core.base.regular_files import write_text
from mudd_core.base.show.chart import COLORS, Chart, axis
from mudd_core.base.types import Array
from mudd_core.config import Config
from mudd_core.engine.mup_statistics import STATISTICS, Probe
from mudd_core.tools.mup_checks.family import chain, train

if TYPE_CHECKING:
    from mudd_core.engine.model import Model


STEPS = (2, 3, 4)
_SHOWN = 12  # statistics that the table shows
BOUND = 0.1
IDS, WINDOWS, LENGTH = 8, 8, 32  # sizes of the coordinate check
LEARNED_IDS, LEARNED_WINDOWS = 64, 4  # sizes of the repeated batch


@dataclass(frozen=True)
class Coordinates:
    """The results of the coordinate check. changes: `<statistic>_<layer>` or logits -> [steps, widths, seeds]."""

    widths: list[int]
    changes: dict[str, Array]

    def slopes(self) -> dict[tuple[str, int], tuple[float, float]]:
        """Return the slope against log2 width and its error by (statistic, step); NaN if a change is not finite."""
        found = {}
        for name, change in self.changes.items():
            for index, step in enumerate(STEPS):
                x = np.repeat(np.log2(self.widths), change.shape[2])
                y = np.log2(np.maximum(change[index].ravel(), 1e-30))
                if np.isfinite(y).all():
                    slope, _, error = _core.fit_line(x.tolist(), y.tolist())
                    found[name, step] = (slope, error)
                else:
                    found[name, step] = (math.nan, math.nan)
        return found

    def failures(self) -> list[tuple[str, int, float]]:
        """Return (statistic, step, slope) outside the bound, worst first. Slopes that are not finite are the worst."""
        bad = [
            (name, step, slope)
            for (name, step), (slope, _) in self.slopes().items()
            if not abs(slope) <= BOUND
        ]
        return sorted(bad, key=lambda b: -abs(b[2]) if math.isfinite(b[2]) else -math.inf)


@dataclass(frozen=True)
class Wider:
    """Losses [widths, seeds, steps] on one batch. The first `warmup` steps are ignored."""

    widths: list[int]
    losses: Array
    warmup: int

    def failures(self) -> list[tuple[int, int, int, float, float]]:
        """Return (narrow, wide, step, excess of the wide model's mean loss, two standard errors) if wider is worse."""
        seeds = self.losses.shape[1]
        mean, spread = self.losses.mean(axis=1), self.losses.var(axis=1, ddof=1) / seeds
        bad = []
        for i in range(len(self.widths) - 1):
            excess = mean[i + 1] - mean[i]
            allowed = 2 * np.sqrt(spread[i] + spread[i + 1])
            for step in range(self.warmup, self.losses.shape[2]):
                if not excess[step] <= allowed[step]:
                    pair = self.widths[i], self.widths[i + 1]
                    bad.append((*pair, step + 1, float(excess[step]), float(allowed[step])))
        return bad


@dataclass
class _Watch:
    """A callback that records the changes in one training."""

    inputs: Array
    probe: Probe | None = None
    first: dict[str, Array] = field(default_factory=dict)
    changes: dict[str, list[float]] = field(default_factory=dict)

    def __call__(self, step: int, model: Model) -> None:
        if step == 0:
            self.probe = Probe(model, *self.inputs.shape)
            self.first = self.probe.read(self.inputs)
        elif step in STEPS and self.probe is not None:
            for name, z in self.probe.read(self.inputs).items():
                change = float(np.abs(z - self.first[name]).mean())
                self.changes.setdefault(name, []).append(change)


def coordinates(members: Sequence[Config], seeds: int, unscaled: str = "") -> Coordinates:
    """Train every width with every seed for four updates at its full learning rate, on the same tokens."""
    tokens = chain(IDS, STEPS[-1] + 1, WINDOWS, LENGTH)
    changes: dict[str, list[list[list[float]]]] = {}  # [widths][seeds][steps]
    for place, config in enumerate(members):
        optim = dataclasses.replace(config.optim, schedule="constant", warmup_steps=0)
        for seed in range(seeds):
            watch = _Watch(tokens[-1, :, :-1])
            train(dataclasses.replace(config, optim=optim), seed, tokens[:-1], unscaled=unscaled, look=watch)
            for name, values in watch.changes.items():
                rows = changes.setdefault(name, [])
                if len(rows) <= place:
                    rows.append([])
                rows[place].append(values)
    arrays = {name: np.array(rows).transpose(2, 0, 1) for name, rows in changes.items()}
    return Coordinates([config.model.d_model for config in members], arrays)


def wider(members: Sequence[Config], seeds: int, steps: int, unscaled: str = "") -> Wider:
    """Train every width with every seed on one batch for `steps` updates."""
    tokens = np.repeat(chain(LEARNED_IDS, 1, LEARNED_WINDOWS, LENGTH), steps, axis=0)
    warmup = min(members[0].optim.warmup_steps, steps // 4)
    losses = []
    for config in members:
        optim = dataclasses.replace(config.optim, schedule="constant", warmup_steps=warmup)
        run = dataclasses.replace(config, optim=optim)
        losses.append([train(run, seed, tokens, unscaled=unscaled) for seed in range(seeds)])
    return Wider([config.model.d_model for config in members], np.array(losses), warmup)


def report(members: Sequence[Config], found: Coordinates, learned: Wider | None, out: Path) -> int:
    """Print the result and write the files to `out`; return 0 if both checks pass, else 1."""
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
        expected = f"expected at most {allowed:.4f} (two standard errors)"
        print(
            f"  FAIL step {step}: the loss of width {wide} is {excess:.4f} above width {narrow}; {expected}"
        )
    if len(worse) > _SHOWN:
        print(f"  ... and {len(worse) - _SHOWN} more")
    for path in write(found, learned, out):
        print(f"  {path}")
    passed = not bad and not worse
    print("mup check: passed" if passed else "mup check: FAILED")
    return 0 if passed else 1


def slope_table(found: Coordinates) -> str:
    """Return a table with the slope farthest from zero over the blocks, for each statistic and step."""
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
    """Write coordinates.svg, wider.svg and check.h5; return their paths."""
    paths = [out / "coordinates.svg", out / "check.h5"]
    write_text(paths[0], coordinate_picture(found))
    if learned:
        paths.insert(1, out / "wider.svg")
        write_text(paths[1], wider_picture(learned))
    _write_h5(found, learned, out / "check.h5")
    return paths


def coordinate_picture(found: Coordinates) -> str:
    """Plot the mean change after four updates against width, one curve for each statistic."""
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
    """Plot loss against step, one curve for each width, with bands of one standard error."""
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
