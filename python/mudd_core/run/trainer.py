"""The training loop on one page: step, report, validate, save, stop, resume.

A step is a transaction: batch, forward, backward, verdict, update, then the step counter. Everything that
decides the future is in the checkpoint, so that a resumed run gives the same bits as an unbroken one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mudd_core.base.errors import StopRequestedError
from mudd_core.base.in_use import InUse, alone
from mudd_core.checkpoint import final_hash
from mudd_core.config import Config, check_config, mesh_of
from mudd_core.dist import Comm
from mudd_core.engine.argument_check import require_model, run_config
from mudd_core.engine.rates import learning_rate
from mudd_core.run import data_place, signals
from mudd_core.run.components import Components, add_text, assemble, with_model_of, with_steps
from mudd_core.run.evaluate import evaluate
from mudd_core.run.grow import check_start, start_from
from mudd_core.run.log import RunLog
from mudd_core.run.lost_source import LostSource, SourceLostError
from mudd_core.run.progress import Progress
from mudd_core.run.protocols import mean_of
from mudd_core.run.ranks import Ranks
from mudd_core.run.records import DATA_FACT, StepRecord, StepReport, Summary, Validation
from mudd_core.run.recovery import Recovery
from mudd_core.run.requests import Requests
from mudd_core.run.same_weights import compare_due, compare_weights
from mudd_core.run.saved_state import reading_state
from mudd_core.run.shared_store import SharedStore, open_store
from mudd_core.run.state import RunState
from mudd_core.run.store import RunStore
from mudd_core.run.styles import RunFacts
from mudd_core.run.trace import Trace
from mudd_core.run.tracker import require_tracker
from mudd_core.run.watch import Watch


class Trainer:
    """Trains one model. In a notebook: `t = mc.Trainer(config); t.step(); t.fit(); t.validate(); t.model`.

    config: or the name of its file, as mc.Trainer("tiny.py"). workdir: a folder (resumed if it holds this run) or a
    RunStore; None writes nothing but the token cache. model: one to train further, in place of config.model; with it,
    `t.step(batch)` needs no text at all. A model of interop.load_original whose loss is over all slots keeps it so. For
    one thread at a time, as its model is. comm: the ranks of the run, each with a Trainer of its own, whose methods all
    of them call alike; rank 0 writes and speaks.
    """

    def __init__(
        self,
        config: Config | str | Path,
        workdir: str | Path | RunStore | SharedStore | None = None,
        model: Any = None,
        *,
        progress: Progress | None = None,
        comm: Comm | None = None,
        assemble: Callable[[Config, Any, str | None, Ranks, Path | None], Components] = assemble,
    ) -> None:
        config = run_config(config)
        if model is not None:
            require_model(model)
            config = with_model_of(model, config)
        check_config(config)
        self._ranks = Ranks(comm)
        world = self._ranks.world
        mesh = self._ranks.together(lambda: mesh_of(config, world))
        self._ranks.together(lambda: require_tracker(config.log))
        self._store = open_store(workdir, self._ranks, config.storage.map)
        self._trace: Trace | None = None
        try:
            self.config, self._changed = self._store.adopt(config) if self._store else (config, [])
            if model is None and not (self._store and self._store.has_checkpoint()):
                self._ranks.together(lambda: check_start(self.config))
            fingerprint = self._store.saved_facts().get(DATA_FACT) if self._store else None
            if not fingerprint:
                self._resolve_steps()
            speaks = progress if self._ranks.first else None
            self._log = RunLog(
                speaks or Progress(quiet=True), self._store, self.config.train, self._ranks, mesh
            )
            self._ranks.together(lambda: self._log.watch_clock(self.config))
            checkpoints = self._store.path / "checkpoints" if self._store else None
            self._components = assemble(self.config, model, fingerprint, self._ranks, checkpoints)
            self._log.warn(self._components.warnings)
            for note in self._components.notes:
                self._log.say(note)
            if self._store is not None:
                self._need_text(fingerprint)
            self.engine = self._components.engine
            self._log.use(self._facts())
            self.in_use = getattr(self._components.model, "in_use", None) or InUse("trainer")
            self._state = RunState(self.config, self._components)
            self._recovery = Recovery(
                self.config.train, self.engine, self._store, self._state, self._log, self._ranks
            )
            self._requests = Requests(self._ranks, self._store, self.config.train)
            self._source = LostSource(self.config.data.retries, self._reopen, self._log.source_lost)
            self._watch = Watch(
                self._ranks, self.config.dist.hang_timeout, self._components.ideal_step(self.config)
            )
            folder = self._store.path if self._store and self._ranks.first else None
            self._trace = Trace(self.config.train.profile, folder, self.engine, self._log.say)
            if not self._resume() and model is None and self.config.start.load_parameters_path:
                self._begin_from_source()
        except BaseException:
            self.close()
            raise
        self._state.start()

    def _resolve_steps(self) -> None:
        """At the first start, train.epochs becomes train.steps."""
        self.config = with_steps(self.config, None, self._ranks)
        if self._store is not None:
            self._store.resolve(self.config)

    def _begin_from_source(self) -> None:
        """Take over what config.start names; with keep_step the run goes on there and keeps that step."""
        text, source = start_from(self.config, self.engine)
        self._log.say(text)
        if self.config.start.keep_step and source.step:
            self._state.begin_at(source.step)
            self._log.restored(source.step, source.path)
            self.save()

    @property
    def model(self) -> Any:
        """The model that is trained; its parameters are read-only views."""
        return self._components.model

    @property
    @alone
    def tokenizer(self) -> Any:
        """Text to token ids and back."""
        self._need_text()
        return self._components.tokenizer

    @property
    def step_done(self) -> int:
        """Updates made so far, parts before a resume included."""
        return self._state.step_done

    @property
    def seconds(self) -> float:
        """Wall time of the run so far, parts before a resume included."""
        return self._state.seconds

    # ---- one step -----------------------------------------------------------------------------------------

    def _need_text(self, fingerprint: str | None = None) -> None:
        if DATA_FACT not in self._components.facts:
            self._components = add_text(self._components, self.config, fingerprint, self._ranks)
            self._log.warn(self._components.warnings)

    @alone
    def step(self, batch: Mapping[str, Any] | None = None) -> StepRecord:
        """One update on the run's next batch, or on a given one of train.batch_size times train.seq_len tokens.

        StopRequestedError if a stop dropped it, DivergedError after too many bad ones. A skipped update that sends the
        run back to a checkpoint leaves step_done below the record's step.
        """
        if batch is None:
            self._need_text()
        with signals.interrupt_later():
            record = self._step(batch)
        if record is None:
            raise StopRequestedError(f"[train] stop requested; step {self.step_done + 1} was dropped")
        return record

    def _step(self, batch: Mapping[str, Any] | None = None, settle: bool = True) -> StepRecord | None:
        t = self.step_done
        begin = time.perf_counter()
        self._recovery.refuse_spoilt()
        if self._store is not None:
            self._store.ended = False
        self._watch.phase("forward", t + 1)
        lr, guard = learning_rate(self.config, t), self._state.guard
        flags = self._requests.flags()

        def take() -> StepReport:
            return self.engine.train_step(guard.batch_index(t), lr, batch, guard.limits(), flags, settle)

        report = take() if batch is not None else self._source.reading(t + 1, take)
        if report is None:
            return None
        self._requests.heard(report)
        if report.stopped:
            return None
        goes_back = self._recovery.judge(t, report, own_batch=batch is None)
        seconds = time.perf_counter() - begin
        self._watch.phase("idle", t + 1)
        self._watch.took_step(seconds)
        record = self._state.took_step(report, lr, seconds, self.engine.figures())
        if goes_back:
            self._recovery.go_back(t)
        if compare_due(self._ranks, self.config.dist.compare_every, record.step):
            compare_weights(self._ranks, self.engine.state_parts(), record.step)
        return record

    # ---- the loop -----------------------------------------------------------------------------------------

    @alone
    def fit(self) -> Summary:
        """Train to the end, or until a stop is asked for; saves, and returns how it ended.

        Raises SaveError if the last save failed. Ctrl-C without the command line's handlers ends the step, saves, and
        is a KeyboardInterrupt then.
        """
        self._need_text()
        self._watch.begin()
        try:
            with signals.interrupt_later():
                return self._fit()
        except BaseException as error:
            if isinstance(error, SourceLostError) and self._state.saved_step != self.step_done:
                self.save()
            self._log.broke_off()
            raise
        finally:
            self._watch.end()

    def _fit(self) -> Summary:
        train = self.config.train
        self._requests.begin()
        trace = self._trace
        assert trace is not None
        while True:
            if (
                self._requests.stop(self.step_done)
                or not self._validate_if_due()
                or self.step_done >= train.steps
                or self._state.reached()
            ):
                break
            with trace.step(self.step_done):
                record = self._step(settle=False)
            if record is None:  # dropped; the reason is found above
                continue
            if record.step > self.step_done:  # gone back to a checkpoint
                continue
            if self._log.took_step(record, self._state.clock.seconds_left(record.step)):
                self._state.logged(record)
            if self._requests.take_save() or self._state.save_due():
                with trace.span("save"):
                    self.save()
            trace.reached(self.step_done)
        return self._end(self._requests.decided)

    def _validate_if_due(self) -> bool:
        """Validate once at this step if it is time; False if a stop broke it off."""
        if not self._state.validation_due():
            return True
        self._log.validating(self.step_done)
        assert self._trace is not None
        with self._trace.span("evaluation"):
            result = self._validate(stop=self._stops_validation)
        if result is None:
            self._stops_validation()
            return False
        self._state.validated(result)
        self._log.validated(result)
        if self._state.saves_best and self._state.save_due():
            self.save()
        return True

    def _stops_validation(self) -> bool:
        self._watch.phase("evaluate", self.step_done)
        self._requests.agree()
        return self._requests.stop(self.step_done) is not None

    def _end(self, stopped: str | None) -> Summary:
        if self._trace is not None:
            self._trace.close()
        if self._state.saved_step != self.step_done and not self._state.saves_best:
            self.save()
        if self._store is not None:
            self._store.settle()
            if self._store.save_error is not None:
                raise self._store.save_error
        summary = self._state.summary(self.final_hash(), stopped)
        self._log.ended(summary)
        return summary

    # ---- validation, saving, resuming ---------------------------------------------------------------------

    @alone
    def validate(self) -> Validation:
        """Loss and bits per byte on the held-out text, as the weights are now; the run's own rows stay its own."""
        self._need_text()
        result = self._validate(stop=lambda: False)
        if result is None:
            raise StopRequestedError("[train] stop requested; the validation was dropped")
        return result

    def _validate(self, stop: Callable[[], bool]) -> Validation | None:
        self.engine.settle()
        self._watch.phase("evaluate", self.step_done)

        def whole() -> Validation | None:
            return evaluate(
                self.engine,
                self._components.validation_batches(),
                step=self.step_done,
                bytes_per_target=self._components.bytes_per_target,
                stop=stop,
                ranks=self._ranks,
                mean=mean_of(self.config),
            )

        # Ranks exchange sums between batches: one of them cannot begin anew alone.
        return whole() if self._ranks.world > 1 else self._source.reading(self.step_done, whole)

    @alone
    def final_hash(self) -> str:
        """SHA-256 over all weights; equal for equal runs."""
        parts = self.engine.state_parts()
        return final_hash((part for part in parts if "/" not in part.name), self._ranks.comm)

    @alone
    def save(self) -> bool:
        """Commit a checkpoint of the last whole step; False if it failed (a warning is printed).

        Nothing is written without a work directory, and with train.save=false.
        """
        self._recovery.refuse_spoilt()
        if self._store is None or not self.config.train.save:
            return True
        begin, guard = time.perf_counter(), self._state.guard
        anchor = guard.anchor
        if self._state.save_due():
            guard.anchor = self.step_done
        parts = self.engine.state_parts()
        with self._watch.saving(self.step_done, sum(part.array.nbytes for part in parts)):
            place = data_place.place_of(self.engine.batcher, guard.batch_index(self.step_done))
            state = {**self._state.state(), **place}
            saved = self._store.save(self.step_done, parts, state, spare=guard.anchor)
        if not saved:
            guard.anchor = anchor
            self._log.save_failed()
            return False
        self._state.saved(time.perf_counter() - begin)
        self._log.saved(self.step_done)
        return True

    def _reopen(self) -> None:
        self._watch.phase("data", self.step_done + 1)
        data_place.end(self.engine.batcher)
        self.engine.batcher = self._components.reopened_rows()

    def _facts(self) -> RunFacts:
        """What the style of the logs knows of the run."""
        parts = self._components
        return RunFacts(
            self.config,
            self._store.path if self._store else None,
            parts.flops_per_token,
            parts.peak,
            lambda: parts.model.parameters,
            parts.documents,
            self._inside,
        )

    def _inside(self, step: int) -> dict[str, float]:
        """Statistics of the model on the first row of the batch of update `step`."""
        from mudd_core.engine.inside import inside_of

        first = self._state.guard.batch_index(step - 1) * self.config.train.batch_size
        reader = inside_of(self.model, self.config.train.seq_len)
        return {} if reader is None else reader.read(self.engine.batcher.arrays(first, 1)["inputs"])

    def _resume(self) -> bool:
        """Go on from the newest checkpoint; False if there is none."""
        if self._store is None:
            return False
        parts = self.engine.state_parts(writable=True)
        found = self._store.begin(self._components.facts, parts)
        if found is None:
            self._state.last_validation = self._store.last_validation(0)  # of a start that saved no step
            self._log.started()
            return False
        self._log.found(found)
        self.engine.load_state(parts)
        with reading_state(found):
            self._state.restore(found.state)
            data_place.go_on(self.engine.batcher, found.state)
        self._state.last_validation = self._store.last_validation(self.step_done)
        self._log.resumed(found, self._changed)
        return True

    def close(self) -> None:
        """Close the logs and give the work directory's lock back."""
        if self._trace is not None:
            self._trace.close()
        data_place.end(getattr(getattr(self, "engine", None), "batcher", None))
        try:
            if (log := getattr(self, "_log", None)) is not None:
                log.close()
        finally:
            if self._store is not None:
                self._store.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
