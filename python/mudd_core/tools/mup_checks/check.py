"""Coordinate check and wider-is-better (Yang et al. 2022, appendix D.1).

Coordinates: after 2 to 4 updates the slope of log2 mean|z(t) - z(0)| against log2 width lies in [-0.1, 0.1] for every
statistic of every block and for the logits, over all widths and seeds. The tokens are few (a chain over eight ids):
what an update does to a width is a law of many channels over few directions, and narrow models show it only so.
Wider is better: on one batch that is learned by heart, the loss of each width is at most that of the next narrower one
plus two standard errors, at every step after warm-up.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from mudd_core import _core
from mudd_core.base.types import Array
from mudd_core.config import Config
from mudd_core.engine.mup_statistics import Probe
from mudd_core.tools.mup_checks.family import chain, train

if TYPE_CHECKING:
    from mudd_core.engine.model import Model

STEPS = (2, 3, 4)
BOUND = 0.1
IDS, WINDOWS, LENGTH = 8, 8, 32  # of the coordinate check
LEARNED_IDS, LEARNED_WINDOWS = 64, 4  # of the batch that is learned by heart


@dataclass(frozen=True)
class Coordinates:
    """changes: `<statistic>_<layer>` or logits -> mean|z(t) - z(0)| [steps, widths, seeds]."""

    widths: list[int]
    changes: dict[str, Array]

    def slopes(self) -> dict[tuple[str, int], tuple[float, float]]:
        """(statistic, step) -> slope against log2 width and its standard error; NaN where a change is not finite."""
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
        """(statistic, step, slope) outside the bound, worst first; not finite counts as worst."""
        bad = [
            (name, step, slope)
            for (name, step), (slope, _) in self.slopes().items()
            if not abs(slope) <= BOUND
        ]
        return sorted(bad, key=lambda b: -abs(b[2]) if math.isfinite(b[2]) else -math.inf)


@dataclass(frozen=True)
class Wider:
    """losses [widths, seeds, steps]; the first `warmup` steps do not count."""

    widths: list[int]
    losses: Array
    warmup: int

    def failures(self) -> list[tuple[int, int, int, float, float]]:
        """(narrow, wide, step, excess of the wide one's mean loss, two standard errors) where wider is worse."""
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
    """Takes the changes of one training."""

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
    """Trains every member with every seed for four updates at its full rate, on the same tokens."""
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
    """Trains every member with every seed on one batch for `steps` updates."""
    tokens = np.repeat(chain(LEARNED_IDS, 1, LEARNED_WINDOWS, LENGTH), steps, axis=0)
    warmup = min(members[0].optim.warmup_steps, steps // 4)
    losses = []
    for config in members:
        optim = dataclasses.replace(config.optim, schedule="constant", warmup_steps=warmup)
        run = dataclasses.replace(config, optim=optim)
        losses.append([train(run, seed, tokens, unscaled=unscaled) for seed in range(seeds)])
    return Wider([config.model.d_model for config in members], np.array(losses), warmup)
