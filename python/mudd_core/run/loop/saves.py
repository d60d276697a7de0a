"""The load and the saves of a run: weights go from the work directory to the engine at the start, later back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from mudd_core.base.errors import DivergedError, UserError
from mudd_core.base.types import JsonObject
from mudd_core.checkpoint import Checkpoint, StatePart, dtypes
from mudd_core.config import Difference, mesh_of
from mudd_core.engine.state import AVERAGED
from mudd_core.run.build.base import require_base
from mudd_core.run.build.grow import start_from
from mudd_core.run.build.start_source import Source
from mudd_core.run.loop import data_place
from mudd_core.run.loop.learning_watch import LearningWatch
from mudd_core.run.loop.session import Session
from mudd_core.run.records.facts import bits_facts
from mudd_core.run.records.phases import Phase
from mudd_core.run.store.metrics import RecordedValidations
from mudd_core.run.store.run_store import RunStore
from mudd_core.run.store.saved_state import reading_state


class Saves:
    """The checkpoint that a run continues from, and the checkpoints that it writes."""

    def __init__(self, run: Session, learning: LearningWatch) -> None:
        self._run, self._learning = run, learning
        self._has_start = False  # True if the checkpoint of step 0 is saved or not needed

    def resume(self, changed: Sequence[Difference]) -> bool:
        """Load the newest checkpoint and its records; return False if there is none."""
        run, state = self._run, self._run.state
        if run.store is None:
            return False
        parts = run.engine.state_parts(writable=True)
        found = run.store.begin(run.components.facts, parts)
        note = run.store.record_bits(bits_facts(run.config.train.precision), found.step if found else 0)
        run.store.keep_files(run.components.tokenizer_files())
        if found is None:
            self._recall(run.store.validations(0))  # entries of an earlier start that saved no step
            run.journal.started(_job(run))
            run.journal.began(0, run.components.documents)
            return False
        run.journal.found(found)
        base = run.components.base
        if base is not None:
            require_base(base, found.state, found.path)
        run.engine.load_state(parts)
        if said := _average_note(run, found):
            run.journal.said(said)
        if base is not None:
            base.settle(run.components.model, fresh=False)
            run.ranks.barrier()
        self._has_start = True
        with reading_state(found):
            state.restore(found.state)
            data_place.restore(run.engine.batcher, found.state)
        self._recall(run.store.validations(state.step_done))
        if note:
            run.journal.warned(note)
        run.journal.resumed(found, changed, _job(run))
        run.journal.began(found.step, run.components.documents)
        return True

    def _recall(self, recorded: RecordedValidations) -> None:
        """Load the metrics that the run has logged up to the step that it continues from."""
        self._run.state.recall(recorded)
        self._learning.recall(recorded)

    def begin_from_source(self) -> None:
        """Load the weights that config.start names; with keep_step, continue at their step and save it."""
        run = self._run
        if (
            base := run.components.base
        ) is not None:  # the weights of a base were loaded when the model was built
            base.settle(run.components.model, fresh=True)
            run.ranks.barrier()
            run.journal.said(base.note)
            return
        text, source = self._started()
        run.journal.said(text)
        if run.config.start.keep_step and source.step:
            run.state.begin_at(source.step)
            run.journal.restored(source)
            self.save()

    def _started(self) -> tuple[str, Source]:
        """Call start_from.

        Each rank raises if the source does not fit the model; together they report the error once.
        """
        run = self._run
        try:
            return start_from(run.config, run.engine, run.components.model, run.ranks.comm)
        except UserError as error:
            unfit = error

        def refuse() -> NoReturn:
            raise unfit

        return run.ranks.together(refuse)

    def save_start(self) -> None:
        """Save the initial weights once, if train.save_at names step 0."""
        if self._has_start or self._run.state.step_done:
            return
        self._has_start = True
        if self._run.state.extra_save_due():
            self.save()

    def save(self) -> bool:
        """Commit a checkpoint of the last complete step; return False if that failed.

        Nothing is written without a work directory or with train.save=false. Raise DivergedError on all ranks if a
        weight or moment is not finite: set_parameter may have written it.
        """
        run, state = self._run, self._run.state
        state.guard.refuse_spoilt()
        if run.store is None or not run.config.train.save:
            return True
        with run.phases.phase(Phase.SAVE):
            return self._save(run.store)

    def _save(self, store: RunStore) -> bool:
        """Do the work of `save`."""
        run, state = self._run, self._run.state
        begin, guard = time.perf_counter(), state.guard
        anchor = guard.anchor
        if state.save_due():
            guard.anchor = state.step_done
        parts = run.engine.state_parts()
        run.ranks.together(lambda: require_finite(parts))
        with run.watch.saving(state.step_done, sum(part.array.nbytes for part in parts)):
            place = data_place.place_of(run.engine.batcher, guard.batch_index(state.step_done))
            saved = store.save(
                state.step_done,
                parts,
                {**state.state(), **place, **(base.state if (base := run.components.base) else {})},
                spare=guard.anchor,
                best_first=state.best_first(),
            )
        if not saved:
            guard.anchor = anchor
            assert store.save_error is not None
            run.journal.save_failed(store.save_error)
            return False
        seconds = time.perf_counter() - begin
        state.saved(seconds)
        run.journal.saved(state.step_done, seconds)
        return True


def _average_note(run: Session, found: Checkpoint) -> str:
    """Continue or start the average of a resumed run; return a line for the user, empty if it simply continues."""
    average, rule = run.engine.average, run.config.train.average
    if average is None:
        return (
            "note: train.average is empty: the mean of the weights is dropped"
            if AVERAGED in found.stored
            else ""
        )
    reason = average.resume(found.stored, found.step)
    return f"note: train.average={rule}: {reason}, so a new one starts at step {found.step}" if reason else ""


def _job(run: Session) -> JsonObject:
    """Return the fields that events of a start have for several ranks; empty for one process."""
    world = run.ranks.world
    return {"ranks": world, "mesh": str(mesh_of(run.config, world))} if world > 1 else {}


def require_finite(parts: list[StatePart]) -> None:
    """Raise DivergedError with the name, index and value of the first element that is not finite."""
    for part in parts:
        if part.array.dtype.kind in "iu":  # counts, and the bits of bf16 moments, which each update checks
            continue
        values = dtypes.as_float32(part.array).reshape(-1)
        # A sum needs no memory, and is NaN or infinite if an element is. It may also overflow, so check elements then.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.sum(values, dtype=np.float32)):
                continue
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise DivergedError(
                f"[save] '{part.name}': expected finite numbers, got {values[bad[0]]} at element "
                f"{part.begin + int(bad[0]):,} ({bad.size:,} in all); nothing was saved. Set the "
                "weight again, or create a new Trainer, which resumes from the last checkpoint"
            )
