"""The first step that differs, replayed in both runs in memory: the first value that differs."""

from __future__ import annotations

import io
import warnings
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from dataclasses import dataclass

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import Array
from mudd_core.engine.engine import Engine
from mudd_core.fingerprint import (
    Difference,
    Key,
    Line,
    Pair,
    StepRecord,
    first_difference,
    measure,
    recording,
)
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.records import events
from mudd_core.tools.compare.compared import ComparedRun
from mudd_core.tools.diff.forms import alone_before, other_forms, other_rows
from mudd_core.tools.diff.reproduced import Reproduced, reproduced
from mudd_core.tools.diff.start import Start

Runs = tuple[ComparedRun, ComparedRun]


@dataclass(frozen=True)
class Replay:
    """Steps of both runs that were replayed here. start: the state from which both start.

    step: the step that differs, or the last one if none differs. difference: the first value that differs, or None.
    forms: why the values cannot be compared one by one, such as another batch size; else empty. rows: the sequences of
    the batch that differ. alone: of each run, the first value before the difference that the other does not compute.
    other_op: the op of B, if it is another one. reproduced: if no value differs, whether each run has recorded these
    values.
    """

    start: Start
    step: int
    difference: Difference | None = None
    forms: str = ""
    rows: tuple[int, ...] = ()
    alone: tuple[Line | None, Line | None] = (None, None)
    other_op: str = ""
    reproduced: tuple[Reproduced, ...] = ()

    @property
    def before_start(self) -> bool:
        """Return whether the states at the start differ, so that the cause is in an earlier step."""
        found = self.difference
        return found is not None and found.stage == "state" and self.step == self.start.step + 1


@dataclass(frozen=True)
class Made:
    """A step that was made here: its record, the values that were kept, and the entry that a run logs for it."""

    record: StepRecord
    kept: dict[Key, Array]
    entry: events.StepRecord


def replay(runs: Runs, start: Start, *, trust_code: bool = False) -> Replay:
    """Replay the steps after `start` in both runs, up to the first that differs. Nothing in the folders changes.

    Raise UserError if a run cannot be opened, for example because its data are gone.
    """
    entries: tuple[list[events.StepRecord], list[events.StepRecord]] = ([], [])
    with _standing(runs, start.step, trust_code=trust_code) as trainers:
        for step in range(start.step + 1, start.last + 1):
            one, two = (made_step(trainer) for trainer in trainers)
            if forms := other_forms(one.record, two.record):
                return Replay(start, step, forms=forms)
            if (pair := first_difference(one.record, two.record)) is not None:
                break
            entries[0].append(one.entry)
            entries[1].append(two.entry)
        else:
            found = [
                reproduced(run, made, trainer)
                for run, made, trainer in zip(runs, entries, trainers, strict=True)
            ]
            return Replay(start, start.last, reproduced=tuple(found))
    rows, alone = other_rows(one.record, two.record), alone_before(pair, one.record, two.record)
    difference = _measured(runs, step, pair, trust_code=trust_code)
    other_op = pair.b.op if pair.b.op != pair.a.op else ""
    return Replay(start, step, difference, rows=rows, alone=alone, other_op=other_op)


def _measured(runs: Runs, step: int, pair: Pair, *, trust_code: bool) -> Difference:
    """Replay a step and return the size of a difference in it."""
    with _standing(runs, step - 1, trust_code=trust_code) as trainers:
        one, two = (made_step(trainer, keep=[pair.a.key]) for trainer in trainers)
    losses = (one.entry.loss, two.entry.loss)
    return measure(pair, one.kept[pair.a.key], two.kept[pair.b.key], losses)


def made_step(trainer: Trainer, keep: Collection[Key] = ()) -> Made:
    """Make the next update of a Trainer, and record all values in it. keep: values to copy."""
    step, engine = trainer.step_done + 1, trainer.engine
    assert isinstance(engine, Engine)
    with recording(engine, keep=keep) as found:
        entry = trainer.step()
    return Made(found.record(engine, step), found.kept, entry)


@contextmanager
def _standing(runs: Runs, step: int, *, trust_code: bool) -> Iterator[list[Trainer]]:
    """Open both runs in memory after this many updates."""
    with ExitStack() as opened:
        yield [opened.enter_context(standing(run, step, trust_code=trust_code)) for run in runs]


def standing(run: ComparedRun, step: int, *, trust_code: bool) -> Trainer:
    """Return a Trainer in memory after this many updates of a run; raise UserError if it cannot be opened."""
    try:
        # The lines and warnings of its start were printed when the run was trained. The report names other bits.
        with redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Trainer(run.records.folder.path, at_step=step, trust_code=trust_code)
    except (UserError, FormatError, OSError) as error:
        raise UserError(
            f"[diff] {run.letter}: step {step + 1:,} of {run.typed} cannot be replayed: {error}"
        ) from error
