"""The rules for bad updates. Updates with spikes or with values that are not finite are skipped; a streak is rewound.

All decisions depend only on the checkpoint's state and on the batches, so a replay makes the same ones.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mudd_core.base.errors import DivergedError
from mudd_core.config import TrainConfig
from mudd_core.run.records.engine import StepReport, kept
from mudd_core.run.records.events import Rewind

WINDOW = 128  # number of accepted updates with which the spike rule compares
SIGMAS = 6.0


class UpdateGuard:
    """The skips, spikes and rewinds of a run, and its position in the order of batches.

    anchor: the newest checkpoint that train.save_every requested. Checkpoints of a stop or of SIGUSR2 are not used, so
    a stop changes no bit of a run that rewinds. spoilt: the engine's state has values that are not finite. known: all
    rewinds of a saved run of which a Trainer in memory repeats the updates.
    """

    def __init__(self, train: TrainConfig) -> None:
        self._train = train
        self.skipped: list[int] = []
        self.skips_in_row = 0
        self.rewinds: list[Rewind] = []
        self.anchor: int | None = None
        self.spoilt = False
        self.known: Sequence[Rewind] = ()
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._norms: deque[float] = deque(maxlen=WINDOW)

    def batch_index(self, step: int) -> int:
        """Return the index of the batch of update `step` (from 0), which skips batches that rewinds left out."""
        return step + sum(rewind.batches for rewind in self.rewinds)

    def follow(self, step: int) -> None:
        """Leave out the batches of the known rewinds to `step` or before; the updates that they undid are not made."""
        made = max((n for n, rewind in enumerate(self.known, 1) if rewind.to_step <= step), default=0)
        if made > len(self.rewinds):
            self.rewinds, self.anchor = list(self.known[:made]), self.known[made - 1].to_step

    def refuse_spoilt(self) -> None:
        """Raise DivergedError if the engine's weights or moments are not finite."""
        if self.spoilt:
            raise DivergedError(
                "[train] weights or moments are not finite, so they are neither trained nor saved; "
                "create a new Trainer"
            )

    def limits(self) -> tuple[float, float] | None:
        """Return the limits of loss and gradient norm for the next update.

        None if the spike rule is off, or if fewer than WINDOW updates were kept.
        """
        if self._train.spike == "off" or len(self._losses) < WINDOW:
            return None
        return _limit(self._losses), _limit(self._norms)

    def judge(self, step: int, report: StepReport) -> str:
        """Count update `step` as kept or skipped, and return the reason of a skip; empty if kept."""
        if kept(report):
            self.skips_in_row = 0
            if self._train.spike != "off":
                self._losses.append(report.loss)
                self._norms.append(report.grad_norm)
            return ""
        self.skipped.append(step)
        self.skips_in_row += 1
        if report.spoilt:
            self.spoilt = True
            return "the update wrote non-finite weights or moments"
        if report.spike:
            loss, norm = self.limits() or (math.inf, math.inf)
            return (
                f"a spike: loss {report.loss:.4f} (limit {loss:.4f}), gradient norm {report.grad_norm:.4g} "
                f"(limit {norm:.4g})"
            )
        return "loss or gradient is not finite"

    def state(self) -> dict[str, Any]:
        """Return the part of a checkpoint's state that `restore` reads."""
        return {
            "skipped_steps": self.skipped,
            "skips_in_row": self.skips_in_row,
            "rewinds": [asdict(rewind) for rewind in self.rewinds],
            "anchor": self.anchor,
            "spike_losses": list(self._losses),
            "spike_norms": list(self._norms),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Load a checkpoint's state, which lacks some keys if an early version wrote it."""
        self.skipped = [int(step) for step in state["skipped_steps"]]
        self.skips_in_row = int(state["skips_in_row"])
        self.rewinds = [Rewind(**rewind) for rewind in state.get("rewinds", [])]
        self.anchor = state.get("anchor", int(state["step"]))
        self._losses = deque(state.get("spike_losses", []), maxlen=WINDOW)
        self._norms = deque(state.get("spike_norms", []), maxlen=WINDOW)
        self.spoilt = False

    def go_back(self, from_step: int, state: Mapping[str, Any]) -> Rewind:
        """Load an earlier checkpoint's state, leave out the batches up to update from_step, and return the rewind."""
        to_step, rewinds = int(state["step"]), self.rewinds
        rewind = Rewind(from_step, to_step, self.batch_index(to_step), self.batch_index(from_step))
        self.restore(state)
        self.anchor = to_step
        self.rewinds = [*rewinds, rewind]
        return rewind


def _limit(values: deque[float]) -> float:
    mean = math.fsum(values) / len(values)
    return mean + SIGMAS * math.sqrt(
        math.fsum((value - mean) * (value - mean) for value in values) / len(values)
    )
