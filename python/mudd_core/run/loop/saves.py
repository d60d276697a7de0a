"""The load and the saves of a run: weights go from the work directory to the engine at the start, later back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from mudd_core import _core
from mudd_core.base.errors import SaveError, UserError
from mudd_core.base.types import JsonObject
from mudd_core.checkpoint import Checkpoint
from mudd_core.config import Difference, mesh_of
from mudd_core.engine.weight_average import AVERAGED
from mudd_core.run.build.base import require_base
from mudd_core.run.build.grow import start_from
from mudd_core.run.build.start_source import Source
from mudd_core.run.loop import data_place
from mudd_core.run.loop.finite_state import require_finite
from mudd_core.run.loop.learning_watch import LearningWatch
from mudd_core.run.loop.session import Session
from mudd_core.run.ranks.ranks import known_to_all
from mudd_core.run.records.facts import bits_facts
from mudd_core.run.records.phases import Phase
from mudd_core.run.store.metrics import RecordedValidations
from mudd_core.run.store.run_store import RunStore
from mudd_core.run.store.saved_state import reading_state
from mudd_core.run.store.step_saves import Outcome


class Saves:
    """The checkpoint that a run continues from, and the checkpoints that it writes."""

    def __init__(self, run: Session, learning: LearningWatch) -> None:
        self._run, self._learning = run, learning
        self._has_start = False  # True if the checkpoint of step 0 is saved or not needed
        self._saving: _Saving | None = None  # a save that threads write
        self._live = _core.LiveBytes(run.config.train.save_buffer)
        self._said_too_early = False

    def resume(self, changed: Sequence[Difference]) -> bool:
        """Load the newest checkpoint and its records; return False if there is none."""
        run, state = self._run, self._run.state
        if run.store is None:
            return False
        parts = run.engine.state_parts(writable=True)
        found = run.store.begin(run.components.facts, parts)
        facts = bits_facts(run.config.train.precision, run.config.mesh.wire, run.ranks.nodes)
        note = run.store.record_bits(facts, found.step if found else 0)
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
            self.save(waits=False)

    def save(self, *, waits: bool = True) -> bool:
        """Commit a checkpoint of the last complete step; return False if that failed.

        Nothing is written without a work directory or with train.save=false. Raise DivergedError on all ranks if a
        weight or moment is not finite: set_parameter may have written it. waits: False with train.save_async: return
        once the save has started; `advance` or `finish` then ends it.
        """
        run, state = self._run, self._run.state
        state.guard.refuse_spoilt()
        if run.store is None or not run.config.train.save:
            return True
        with run.phases.phase(Phase.SAVE):
            return self._save(run.store, asynchronous=run.config.train.save_async and not waits)

    def _save(self, store: RunStore, *, asynchronous: bool) -> bool:
        """Do the work of `save`."""
        run, state = self._run, self._run.state
        if asynchronous and self._saving is not None:
            self._say_too_early(self._saving.step)
        self.finish()
        begin = time.perf_counter()
        saving = _Saving(state.step_done, state.saved_step, state.guard.anchor)
        if state.save_due():
            state.guard.anchor = state.step_done
        parts = run.engine.state_parts()
        run.ranks.together(lambda: require_finite(parts))
        saving.bytes = sum(part.array.nbytes for part in parts)
        with run.watch.saving(saving.step, saving.bytes):
            place = data_place.place_of(run.engine.batcher, state.guard.batch_index(state.step_done))
            outcome = store.save(
                state.step_done,
                parts,
                {**state.state(), **place, **(base.state if (base := run.components.base) else {})},
                spare=state.guard.anchor,
                best_first=state.best_first(),
                live=self._live if asynchronous else None,
            )
        if outcome is Outcome.WRITES:
            run.engine.lend_state(self._live)
            saving.live, state.saved_step = True, saving.step
            run.journal.save_started(saving.step)
        return self._took(saving, outcome, begin)

    def advance(self, *, writes: bool) -> None:
        """Continue or end a started save between two steps; all ranks call this.

        writes: whether a rank is still writing, the same on all ranks.
        """
        if self._saving is not None and not writes:
            self._continue()

    def finish(self) -> None:
        """Wait until a started save is committed or has failed; all ranks call this."""
        while self._saving is not None:
            self._continue()

    def release(self) -> None:
        """Return when callers may change weights on any rank; all ranks call this."""
        if self._saving is not None and self._run.ranks.world > 1:
            self._live.release()
            self._run.ranks.barrier()

    def finish_after(self, error: BaseException) -> None:
        """End a started save before `error` ends the run. Errors of the save are only reported."""
        if self._run.ranks.world == 1 or known_to_all(error):
            self.finish()
        elif self._run.store is not None:
            self._saving = None
            with contextlib.suppress(SaveError):  # the other ranks may no longer answer
                self._run.store.saves.leave()

    def _continue(self) -> None:
        run, saving = self._run, self._saving
        assert run.store is not None and saving is not None
        self._saving, since = None, time.perf_counter()  # after an error there is nothing to end
        with run.phases.phase(Phase.SAVE), run.watch.saving(saving.step, saving.bytes):
            outcome = run.store.saves.advance()
        self._took(saving, outcome, since)

    def _took(self, saving: _Saving, outcome: Outcome, since: float) -> bool:
        """Record a stage of a save, in progress since that time; return whether the save has not failed."""
        run, state = self._run, self._run.state
        assert run.store is not None
        saving.seconds += time.perf_counter() - since
        if outcome is Outcome.WRITES:
            self._saving = saving
            return True
        if outcome is Outcome.FAILED:
            state.guard.anchor, state.saved_step = saving.anchor, saving.saved_step
            assert run.store.save_error is not None
            run.journal.save_failed(run.store.save_error)
            return False
        state.saved(saving.step, saving.seconds)
        # The seconds of `release` are part of a step.
        run.journal.saved(saving.step, saving.seconds + (self._live.seconds if saving.live else 0.0))
        return True

    def _say_too_early(self, earlier: int) -> None:
        """Warn once that a save has to wait for the previous one."""
        if not self._said_too_early:
            self._said_too_early = True
            self._run.journal.warned(
                f"[train.save_async] the save of step {self._run.state.step_done} waits, because the checkpoint of "
                f"step {earlier} is still being written; raise train.save_every"
            )


@dataclass
class _Saving:
    """A save in progress: its step, the values to restore if it fails, its bytes, and the time that the run lost."""

    step: int
    saved_step: int
    anchor: int | None
    bytes: int = 0
    live: bool = False  # True once threads write it
    seconds: float = 0.0


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
