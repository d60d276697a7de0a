"""The first step at which two runs have other numbers: exact bits of what both have logged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mudd_core.base.types import Array, Int64
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.tools.compare.compared import ComparedRun, column_of, steps_of

COMPARED = {"loss": "loss", "grad_norm": "gradient norm"}


@dataclass(frozen=True)
class Value:
    """A number at the first step that differs; None: not finite."""

    name: str
    base: float | None
    other: float | None

    @property
    def equal(self) -> bool:
        """Whether both runs have the same bits."""
        return self.base == self.other


@dataclass(frozen=True)
class FirstDifference:
    """step: None where all common steps are equal. before: the last common step with equal numbers, 0 for none.

    common: the steps that both have logged. whole: whether these are all steps of both up to the last one.
    rate_step: the first common step with another learning rate. batch_step: that with another hash of its ids;
    hashed: whether both have recorded hashes at common steps.
    """

    common: Int64
    step: int | None
    before: int
    values: Sequence[Value]
    whole: bool
    rate_step: int | None
    batch_step: int | None
    hashed: bool


def first_difference(base: ComparedRun, other: ComparedRun) -> FirstDifference:
    """Compare two runs at the steps that both have logged."""
    common, left, right = np.intersect1d(steps_of(base.updates), steps_of(other.updates), return_indices=True)
    names = [name for name in COMPARED if name in base.updates and name in other.updates]
    unequal = np.zeros(len(common), bool)
    for name in names:
        unequal |= _unequal(base.updates, other.updates, name, left, right)
    place = _first(unequal)
    step = None if place is None else int(common[place])
    at = len(common) if place is None else place
    hashes = [step for step in common.tolist() if step in base.batch_hashes and step in other.batch_hashes]
    batches = (step for step in hashes if base.batch_hashes[step] != other.batch_hashes[step])
    rate_place = _first(_unequal(base.updates, other.updates, "lr", left, right))
    return FirstDifference(
        common=common,
        step=step,
        before=int(common[at - 1]) if at else 0,
        values=[]
        if place is None
        else [
            Value(name, _number(base.updates, name, left[place]), _number(other.updates, name, right[place]))
            for name in names
        ],
        whole=len(common) == (int(common[-1]) if len(common) else 0),
        rate_step=None if rate_place is None else int(common[rate_place]),
        batch_step=next(batches, None),
        hashed=bool(hashes),
    )


def _unequal(base: Metrics, other: Metrics, name: str, left: Int64, right: Int64) -> Array:
    one, two = column_of(base, name)[left], column_of(other, name)[right]
    unequal: Array = (one != two) & ~(np.isnan(one) & np.isnan(two))
    return unequal


def _first(unequal: Array) -> int | None:
    places = np.flatnonzero(unequal)
    return int(places[0]) if len(places) else None


def _number(table: Metrics, name: str, place: int) -> float | None:
    value = float(table[name][place])
    return value if np.isfinite(value) else None
