"""Compared runs: their records up to a step, and the first step at which two runs differ.

Two runs differ at a step if a value that both have logged for it differs in any bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mudd_core.base.types import Array, Float64, Int64
from mudd_core.engine.flops import flops_per_token
from mudd_core.engine.model_shape import resolved_model
from mudd_core.run.records.facts import AVERAGED
from mudd_core.run.records.machine import PEAK_MEMORY
from mudd_core.run.report.page.records import Records
from mudd_core.run.store.metric_arrays import Metrics

COMPARED = {"loss": "loss", "grad_norm": "gradient norm"}


@dataclass(frozen=True)
class ComparedRun:
    """A run with its letter. until: the step, if the path is a checkpoint; later records are ignored. None: no
    limit.
    """

    letter: str
    typed: str
    records: Records
    until: int | None = None

    @property
    def updates(self) -> Metrics:
        """Return the records of updates as columns."""
        return self.records.updates

    @property
    def validations(self) -> Metrics:
        """Return the records of validations as columns."""
        return self.records.validations

    @property
    def last_step(self) -> int:
        """Return the last logged update; 0 if there is none."""
        return int(self.updates["step"][-1]) if self.updates.rows else 0

    @property
    def tokens_per_step(self) -> int:
        """Return the tokens of an update."""
        train = self.records.config.train
        return train.batch_size * train.seq_len

    @cached_property
    def flops_per_token(self) -> float | None:
        """Return the training FLOPs of a token; None if run.json has no vocabulary."""
        config, size = self.records.config, self.records.facts.get("vocab_size")
        if not isinstance(size, int):
            return None
        try:
            shape = resolved_model(config, size)
            return flops_per_token(shape, shape.vocab_size, config.train.seq_len)
        except ValueError:  # UserError is a ValueError: the model rejects the vocabulary
            return None

    @property
    def final_hash(self) -> str:
        """Return the hash of the weights after the last step; empty if the run has not ended at that step."""
        found, step = self.records.summary.get("final_hash"), self.records.summary.get("step")
        newest = isinstance(step, int) and step >= self.last_step
        return found if isinstance(found, str) and newest else ""

    @property
    def peak_memory(self) -> int:
        """The peak resident memory in bytes, the largest over all starts of the run; 0 if none was recorded."""
        sizes = (event.get(PEAK_MEMORY) for event in self.records.events)
        return max((size for size in sizes if isinstance(size, int)), default=0)

    @property
    def averaged(self) -> bool:
        """Return whether the folder has the mean of checkpoints of a run, and was not trained since then."""
        return bool(self.records.facts.get(AVERAGED)) and not self.updates.rows

    @property
    def state(self) -> str:
        """The progress of the run, as text."""
        steps, summary = self.records.config.train.steps, self.records.summary
        if self.averaged:
            return f"mean of checkpoints up to step {self.records.last_step:,}"
        if self.until is not None:
            return f"up to step {self.until:,} of {steps:,}"
        ended = self.final_hash and not summary.get("stopped")
        how = "out of patience, " if self.records.out_of_patience else "finished, " if ended else ""
        return f"{how}step {self.records.last_step:,} of {steps:,}"

    @property
    def batch_hashes(self) -> Mapping[int, str]:
        """Return the hash of the ids by step, including steps after `until`; empty without log.batches."""
        return self.records.batch_hashes


def steps_of(table: Metrics) -> Int64:
    """Return the steps of the records."""
    return np.asarray(table.get("step", ()), np.int64)


def column_of(table: Metrics, name: str) -> Float64:
    """Return a column of numbers; all NaN if the table has no such column."""
    return np.asarray(table[name], np.float64) if name in table else np.full(table.rows, np.nan)


def short_names(runs: Sequence[ComparedRun]) -> list[str]:
    """Return the last parts of the runs' paths if they are distinct, or else the names that the user wrote."""
    short = [run.records.folder.path.name for run in runs]
    return short if len(set(short)) == len(short) else [run.typed for run in runs]


@dataclass(frozen=True)
class Value:
    """The values of a column at the first step that differs. None: not finite."""

    name: str
    base: float | None
    other: float | None

    @property
    def equal(self) -> bool:
        """Return whether both runs have the same bits."""
        return self.base == self.other


@dataclass(frozen=True)
class FirstDifference:
    """The first difference of two runs. step: None if all common steps are equal.

    before: the last common step with equal values, or 0. common: the steps that both have logged. whole: True if both
    have logged all steps up to the last common one. rate_step, batch_step: the first common step with another learning
    rate, or with another hash of the ids. hashed: both have recorded hashes at common steps.
    """

    common: Int64
    step: int | None
    before: int
    values: Sequence[Value]
    whole: bool
    rate_step: int | None
    batch_step: int | None
    hashed: bool


def first_difference(
    base: ComparedRun, other: ComparedRun, columns: Iterable[str] = COMPARED
) -> FirstDifference:
    """Compare two runs at the steps that both have logged. columns: the values to compare."""
    common, left, right = np.intersect1d(steps_of(base.updates), steps_of(other.updates), return_indices=True)
    names = [name for name in columns if name in base.updates and name in other.updates]
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
