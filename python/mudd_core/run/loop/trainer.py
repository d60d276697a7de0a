"""The training loop on one page: step, report, validate, save, stop, resume.

A step is a transaction: batch, forward, backward, finite check, update, then the step counter. Everything that
decides the future is in the checkpoint, so that a resumed run gives the same bits as an unbroken one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.errors import DataEndError, StopRequestedError
from mudd_core.base.in_use import InUse, alone
from mudd_core.base.types import Array
from mudd_core.checkpoint import final_hash
from mudd_core.config import Config, check_config, mesh_of
from mudd_core.config.fields import replace_path
from mudd_core.dist import Comm
from mudd_core.engine.argument_check import require_model, run_config
from mudd_core.run.build.components import Components, assemble, with_model_of, with_steps
from mudd_core.run.build.rows import data_end_note, shortened
from mudd_core.run.build.start_source import check_start, fetch_start
from mudd_core.run.build.start_tokenizer import with_source_tokenizer
from mudd_core.run.loop import signals
from mudd_core.run.loop.lost_source import LostSource, SourceLostError
from mudd_core.run.loop.requests import Requests
from mudd_core.run.loop.saves import Saves
from mudd_core.run.loop.session import Session
from mudd_core.run.loop.updates import Updates
from mudd_core.run.loop.validator import Validator
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.events import StepRecord, Summary, Validation
from mudd_core.run.records.facts import data_fingerprint
from mudd_core.run.report.progress import Progress
from mudd_core.run.report.run_log import RunLog
from mudd_core.run.report.styles import reads_weights
from mudd_core.run.report.trace import Trace
from mudd_core.run.report.tracker import require_tracker
from mudd_core.run.store.logs import require_metrics_file
from mudd_core.run.store.shared_store import open_store
from mudd_core.run.store.store import Store

if TYPE_CHECKING:
    from mudd_core.data.tokenize import Tokenizer
    from mudd_core.engine.model import Model


class Trainer:
    """Trains one model. In a notebook: `t = mc.Trainer(config); t.step(); t.fit(); t.validate(); t.model`.

    config: or the name of its file, as mc.Trainer("tiny.py"). workdir: a folder (resumed if it holds this run) or a
    Store; None writes nothing but the token cache. model: one to train further, in place of config.model; with it,
    `t.step(batch)` needs no text at all. A model of interop.load_original whose loss is over all slots keeps it so. For
    one thread at a time, as its model is. comm: the ranks of the run, each with a Trainer of its own, whose methods all
    of them call alike; rank 0 writes and prints. fields: of another program's config, by name, for the first lines of
    its log style.
    """

    def __init__(
        self,
        config: Config | str | Path,
        workdir: str | Path | Store | None = None,
        model: Model | None = None,
        *,
        progress: Progress | None = None,
        comm: Comm | None = None,
        assemble: Callable[[Config, Model | None, str | None, Ranks, Path | None], Components] = assemble,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        config = run_config(config)
        if model is not None:
            require_model(model)
            config = with_model_of(model, config)
        check_config(config)
        ranks = self._ranks = Ranks(comm)
        mesh = ranks.together(lambda: mesh_of(config, ranks.world))
        ranks.together(lambda: require_tracker(config.log))
        ranks.together(lambda: require_metrics_file(config) if ranks.first else None)
        self._open = ExitStack()  # what close() closes, the last one first
        self._store = store = open_store(workdir, ranks, config.storage.map)
        try:
            if store is not None:
                self._open.callback(store.close)
            self.config, changed = store.adopt(config) if store else (config, [])
            said, warned = "", ""
            if model is None and not (store and store.has_checkpoint()):
                ranks.together(lambda: fetch_start(self.config) if ranks.first else None)
                ranks.together(lambda: check_start(self.config))
                said, warned = self._take_source_tokenizer()
            fingerprint = data_fingerprint(store.saved_facts()) or None if store else None
            if not fingerprint:
                self._resolve_steps()
            shown = (progress if ranks.first else None) or Progress(quiet=True)
            self._log = RunLog(shown, store, self.config.train, ranks, mesh, fields)
            self._open.callback(self._log.close)
            self._log.warn((warned,) if warned else ())
            if said:
                self._log.say(said)
            ranks.together(lambda: self._log.watch_clock(self.config))
            checkpoints = store.path / "checkpoints" if store else None
            parts = assemble(self.config, model, fingerprint, ranks, checkpoints)
            self._data_end = bool(parts.steps)  # comes before train.steps
            if parts.steps:
                self.config = shortened(self.config, parts.steps)
                self._log.shorten(self.config.train)
            self._run = run = Session(self.config, parts, store, self._log, ranks, fingerprint)
            self._open.callback(run.end_rows)
            self.engine, self._state, self._watch = run.engine, run.state, run.watch
            self.in_use = getattr(self.model, "in_use", None) or InUse("trainer")
            self._requests = Requests(ranks, store, self.config.train)
            source = LostSource(self.config.data.retries, run.reopen_rows, self._log.source_lost)
            self._updates = Updates(run, source, self._requests)
            self._saves = Saves(run)
            folder = store.path if store and ranks.first else None
            self._trace = Trace(self.config.train.profile, folder, self.engine, self._log.say)
            self._open.callback(self._trace.close)
            self._validator = Validator(run, source, self._requests, self._saves, self._trace)
            if not self._saves.resume(changed) and model is None and self.config.start.load_parameters_path:
                self._saves.begin_from_source()
        except BaseException:
            self.close()
            raise
        self._state.start()

    def _take_source_tokenizer(self) -> tuple[str, str]:
        """At a start from other weights, take their tokenizer; return a line for the user and a warning."""
        folder = self._store.path if self._store is not None else None

        def taken() -> list[str]:
            config, *texts = with_source_tokenizer(self.config, folder)
            return [config.data.tokenizer, *texts]

        name, said, warned = self._ranks.from_first(taken)
        if name != self.config.data.tokenizer:
            self.config = replace_path(self.config, "data.tokenizer", name)
            if self._store is not None:
                self._store.resolve(self.config)
        return said, warned

    def _resolve_steps(self) -> None:
        """At the first start, train.epochs becomes train.steps."""
        self.config = with_steps(self.config, None, self._ranks)
        if self._store is not None:
            self._store.resolve(self.config)

    @property
    def model(self) -> Model:
        """The model that is trained; its parameters are read-only views."""
        return self._run.components.model

    @property
    @alone
    def tokenizer(self) -> Tokenizer | None:
        """Text to token ids and back."""
        self._run.need_text()
        return self._run.components.tokenizer

    def validation_batches(self) -> Iterable[Mapping[str, Array]]:
        """The batches that a validation reads."""
        self._run.need_text()
        return self._run.components.validation_batches()

    @property
    def step_done(self) -> int:
        """Updates made so far, parts before a resume included."""
        return self._state.step_done

    @property
    def seconds(self) -> float:
        """Wall time of the run so far, parts before a resume included."""
        return self._state.seconds

    # ---- one step -----------------------------------------------------------------------------------------

    @alone
    def step(self, batch: Mapping[str, Array] | None = None) -> StepRecord:
        """One update on the run's next batch, or on a given one of train.batch_size times train.seq_len tokens.

        StopRequestedError if a stop dropped it, DivergedError after too many bad ones. A skipped update that sends the
        run back to a checkpoint leaves step_done below the record's step.
        """
        if batch is None:
            self._run.need_text()
        with signals.interrupt_later():
            record = self._updates.make_update(batch)
        if record is None:
            raise StopRequestedError(f"[train] stop requested; step {self.step_done + 1} was dropped")
        return record

    # ---- the loop -----------------------------------------------------------------------------------------

    @alone
    def fit(self) -> Summary:
        """Train to the end, or until a stop is asked for; saves, and returns how it ended.

        Raises SaveError if the last save failed. Ctrl-C without the command line's handlers ends the step, saves, and
        is a KeyboardInterrupt then.
        """
        self._run.need_text()
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
        self._requests.begin()
        while True:
            if (
                self._requests.stop(self.step_done)
                or not self._validator.validate_if_due()
                or self.step_done >= self.config.train.steps
                or self._state.reached()
            ):
                break
            with self._trace.step(self.step_done):
                try:
                    record = self._updates.make_update(settle=reads_weights(self.config, self.step_done + 1))
                except DataEndError as end:
                    self._end_with_data(end)
                    continue
            if record is None:  # dropped; the reason is found above
                continue
            if record.step > self.step_done:  # gone back to a checkpoint
                continue
            if self._log.took_step(record, self._state.clock.seconds_left(record.step)):
                self._state.logged(record)
            if self._requests.take_save() or self._state.save_due():
                with self._trace.span("save"):
                    self.save()
            self._trace.reached(self.step_done)
        return self._end(self._requests.decided)

    def _end_with_data(self, end: DataEndError) -> None:
        """Make the last update the end of the run, where train.to_data_end allows it; else raise."""
        if not (self.config.train.to_data_end and self.step_done):
            raise end
        self._log.say(data_end_note(self.config, self.step_done))
        self._data_end = True
        self.config = shortened(self.config, self.step_done)
        self._log.shorten(self.config.train)
        self._run.shorten(self.config)

    def _end(self, stopped: str | None) -> Summary:
        self._trace.close()
        if self._state.saved_step != self.step_done and not self._state.saves_best:
            self.save()
        if self._store is not None:
            self._store.settle()
            if self._store.save_error is not None:
                raise self._store.save_error
        validates = self._run.components.validates
        summary = self._state.summary(
            self.final_hash(), stopped, data_end=self._data_end, validates=validates
        )
        self._log.ended(summary)
        return summary

    # ---- validation, saving, resuming ---------------------------------------------------------------------

    @alone
    def validate(self) -> Validation:
        """Loss and bits per byte on the held-out text, as the weights are now; the run's own rows stay its own."""
        self._run.need_text()
        result = self._validator.measure()
        if result is None:
            raise StopRequestedError("[train] stop requested; the validation was dropped")
        return result

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
        return self._saves.save()

    def close(self) -> None:
        """Close the logs and release the lock of the work directory."""
        self._open.close()

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
