"""Runs of a model on a batch that show their values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy.typing as npt

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.engine.model import Model
from mudd_core.fingerprint.lines import Key, Line
from mudd_core.fingerprint.recording import kept_of, lines_of


class Watched(Protocol):
    """Runs of a model on a batch, in this process or in another one. loss: known after the first run."""

    precision: str
    loss: float

    def lines(self) -> tuple[Line, ...]:
        """Return the lines of all values."""

    def values(self, keys: Sequence[Key]) -> dict[Key, Array]:
        """Return copies of some values."""


def require_no_patch(model: Model) -> None:
    """Raise UserError for a model with an active patch."""
    if model.inside.is_patched:
        raise UserError("[diff] patch: expected models without an active patch; leave the patch first")


class Observed:
    """Runs of a model on a batch that show their values."""

    def __init__(self, model: Model, batch: npt.ArrayLike | Mapping[str, npt.ArrayLike]) -> None:
        require_no_patch(model)
        self.model, self.precision = model, model.precision
        self._arrays, self._optional = model.arrays_of(batch)
        self.loss = math.nan

    def lines(self) -> tuple[Line, ...]:
        """Return the lines of all values."""
        fingerprint = _core.Fingerprint()
        self._run(fingerprint)
        return lines_of(fingerprint)

    def values(self, keys: Sequence[Key]) -> dict[Key, Array]:
        """Return copies of some values."""
        values = _core.Values([(key.stage, key.run, key.place, key.value) for key in keys])
        self._run(values)
        return kept_of(values)

    def _run(self, observer: _core.NodeObserver) -> None:
        trains, shape = "targets" in self._arrays, self._arrays["inputs"].shape
        mode = "train" if trains else "logits"
        planned = self.model.plan(mode, *shape, optional=self._optional, gradient_rows=False)
        planned.fill(self._arrays)
        planned.executor.show_weights(observer)
        planned.executor.observe(observer)
        try:
            planned.executor.run()
        finally:
            planned.executor.observe(None)
        if trains:
            loss, count = planned.sums()
            self.loss = loss / self.model.denominator(count, self._arrays)
