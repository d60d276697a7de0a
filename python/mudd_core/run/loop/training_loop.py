"""The loop of a run: updates, with the validations, saves and stops that are due between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mudd_core.base.errors import DataEndError
from mudd_core.checkpoint import final_hash, is_weight
from mudd_core.run.build.rows import data_end_note
from mudd_core.run.loop.learning_watch import LearningWatch
from mudd_core.run.loop.requests import Requests
from mudd_core.run.loop.saves import Saves
from mudd_core.run.loop.session import Session
from mudd_core.run.loop.updates import Updates, reads_weights
from mudd_core.run.loop.validator import Validator
from mudd_core.run.ranks.load import LoadMeter
from mudd_core.run.records.events import StepRecord, Summary
from mudd_core.run.records.phases import Phase
from mudd_core.run.report.style import logs_step
from mudd_core.run.report.trace import Trace


class TrainingLoop:
    """A loop that trains until the end of the run or a stop request. summary: the result of the last loop."""

    def __init__(
        self,
        run: Session,
        requests: Requests,
        updates: Updates,
        validator: Validator,
        saves: Saves,
        trace: Trace,
        learning: LearningWatch,
    ) -> None:
        self._run, self._state, self._requests = run, run.state, requests
        self._updates, self._validator, self._saves, self._trace = updates, validator, saves, trace
        self._learning = learning
        self._data_end = run.components.steps > 0  # the data end before train.steps
        self.summary: Summary | None = None

    def records(self, most: int | None, *, settle: bool) -> Iterator[StepRecord]:
        """Yield the record of each update that is not undone by a rewind; at the end save, and set `summary`.

        most: the largest count of updates; None for all that remain. settle: as in Engine.train_step, for a caller that
        reads weights between two updates. Raise SaveError if the last save failed.
        """
        self._run.phases.start()
        try:
            yield from self._records(most, settle=settle)
        finally:
            self._run.phases.stop()

    def _records(self, most: int | None, *, settle: bool) -> Iterator[StepRecord]:
        state, self.summary = self._state, None
        self._load = LoadMeter(alone=self._run.ranks.world == 1)
        self._requests.begin()
        last = None if most is None else state.step_done + most
        self._saves.save_start()
        while not self._is_over(last):
            with self._trace.step(state.step_done):
                record = self._update(settle)
            # the update was dropped, or the run has gone back to a checkpoint
            if record is None or record.step > state.step_done:
                continue
            logged, left = logs_step(self._run.config, record.step), state.clock.seconds_left(record.step)
            if logged:
                record = self._timed(record)
            self._run.journal.took_step(record, logged=logged, seconds_left=left)
            state.unlogged = None if logged else record
            if logged:
                state.logged(record)
            self._learning.took_step(record, logged=logged)
            self._saves.advance(writes=self._requests.writes())
            if self._requests.take_save() or state.save_due() or state.extra_save_due():
                with self._trace.span("save"):
                    self._saves.save(waits=False)
            self._trace.reached(state.step_done)
            if settle:
                self._saves.release()
            before = self._run.phases.enter(Phase.CALLBACK)
            yield record
            self._run.phases.enter(before)
        self.summary = self._end(self._requests.decided)

    def _timed(self, record: StepRecord) -> StepRecord:
        """Return the record of a logged update with the phases and the load since the last entry."""
        clock, ranks = self._run.phases, self._run.ranks
        hidden, phases = round(clock.hidden, 6), clock.lap()
        load = self._load.take()
        if ranks.world > 1:
            waits: list[float] = ranks.gathered(phases[Phase.MESSAGES] / max(1e-9, sum(phases.values())))
            if load:
                load["least_wait"] = round(min(waits), 4)
        return replace(record, phases=phases, hidden=hidden, load=load)

    def _is_over(self, last: int | None) -> bool:
        """Validate if that is due, and return whether the loop ends at this step. last: the last step of the loop."""
        state = self._state
        if (
            self._requests.stop(state.step_done)
            or not self._validator.validate_if_due()
            or state.step_done >= self._run.config.train.steps
            or state.reached()
            or state.out_of_patience()
        ):
            return True
        if last is None or state.step_done < last:
            return False
        self._requests.decided = "fit(steps)"
        return True

    def _update(self, settle: bool) -> StepRecord | None:
        """Make the next update; return None if a stop dropped it or the data have ended."""
        run, step = self._run, self._state.step_done
        try:
            return self._updates.make_update(settle=settle or reads_weights(run.config, step + 1))
        except DataEndError:
            if not (run.config.train.to_data_end and step):
                raise
            run.journal.said(data_end_note(run.config, step))
            self._data_end = True
            run.end_here()
            return None

    def _end(self, stopped: str | None) -> Summary:
        run, state = self._run, self._state
        self._trace.close()
        if stopped is None:
            self._learning.ended(state.step_done)
        self._saves.finish()
        if state.saved_step != state.step_done and not state.saves_best:
            self._saves.save()
        if run.store is not None:
            run.store.settle()
            if run.store.save_error is not None:
                raise run.store.save_error
        parts = (part for part in run.engine.state_parts() if is_weight(part.name))
        summary = state.summary(
            final_hash(parts, run.ranks.comm),
            stopped,
            data_end=self._data_end,
            validates=run.components.validates and not run.config.eval.off,
            warnings=tuple(self._learning.warnings),
        )
        last = None if stopped or state.unlogged is None else self._timed(state.unlogged)
        if last is not None:
            last = self._updates.with_sources(last)
        run.journal.ended(summary, last, run.phases.lap())
        if last is not None:
            state.unlogged = None
        if run.store is not None:
            run.store.finish(summary)
        run.journal.finished(summary)
        return summary
