"""The training loop on one page: step, report, validate, save, stop, resume.

A step is a transaction: batch, forward, backward, finite check, update, then the step counter. Everything that
decides the future is in the checkpoint, so that a resumed run gives the same bits as an unbroken one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.errors import DataEndError, StopRequestedError
from mudd_core.base.html_table import html_table
from mudd_core.base.in_use import InUse, alone
from mudd_core.base.types import Array, Int32
from mudd_core.checkpoint import final_hash, is_weight
from mudd_core.config import Config
from mudd_core.dist import Comm
from mudd_core.engine.argument_check import require_model
from mudd_core.run.build.components import assemble
from mudd_core.run.loop import signals
from mudd_core.run.loop.lost_source import LostSource, SourceLostError
from mudd_core.run.loop.opening import Assemble, asked_run, open_run
from mudd_core.run.loop.requests import Requests
from mudd_core.run.loop.saves import Saves
from mudd_core.run.loop.updates import Updates
from mudd_core.run.loop.validator import Validator
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.events import StepRecord, Summary, Validation
from mudd_core.run.report.object_text import Facts, one_line, run_facts
from mudd_core.run.report.progress import Progress
from mudd_core.run.report.styles import reads_weights
from mudd_core.run.report.trace import Trace
from mudd_core.run.store.store import Store

if TYPE_CHECKING:
    from mudd_core.data.tokenize import Tokenizer
    from mudd_core.engine.model import Model


class Trainer:
    """Trains one model. In a notebook: `t = mc.Trainer(config); t.step(); t.fit(); t.validate(); t.model`.

    config: or the name of its file, as mc.Trainer("tiny.py"), or the folder of a run, which is resumed with its own
    config: mc.Trainer("runs/x"). workdir: a folder (resumed if it holds this run) or a
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
        assemble: Assemble = assemble,
        fields: Mapping[str, object] | None = None,
    ) -> None:
        (asked, workdir), ranks = asked_run(config, workdir), Ranks(comm)
        if model is not None:
            require_model(model)
        self._open = ExitStack()  # what close() closes, the last one first
        try:
            run = open_run(asked, workdir, model, ranks, progress, fields, assemble, self._open)
            self._run = run
            self.engine, self._state, self._watch = run.engine, run.state, run.watch
            self.in_use = getattr(self.model, "in_use", None) or InUse("trainer")
            self._requests = Requests(ranks, run.store, run.config.train)
            source = LostSource(run.config.data.retries, run.reopen_rows, run.log.source_lost)
            self._updates = Updates(run, source, self._requests)
            self._saves = Saves(run)
            folder = run.store.path if run.store and ranks.first else None
            self._trace = Trace(run.config.train.profile, folder, self.engine, run.log.say)
            self._open.callback(self._trace.close)
            self._validator = Validator(run, source, self._requests, self._saves, self._trace)
            if not self._saves.resume() and model is None and run.config.start.load_parameters_path:
                self._saves.begin_from_source()
        except BaseException:
            self.close()
            raise
        self._state.start()

    @property
    def config(self) -> Config:
        """The config that is trained: the one given, with what a resume or the data change of it."""
        return self._run.config

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

    def validation_batches(self) -> Iterable[Mapping[str, Int32]]:
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
            self._run.log.broke_off()
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
                except DataEndError:
                    if not (self.config.train.to_data_end and self.step_done):
                        raise
                    self._run.end_with_data()
                    continue
            if record is None:  # dropped; the reason is found above
                continue
            if record.step > self.step_done:  # gone back to a checkpoint
                continue
            if self._run.log.took_step(record, self._state.clock.seconds_left(record.step)):
                self._state.logged(record)
            if self._requests.take_save() or self._state.save_due():
                with self._trace.span("save"):
                    self.save()
            self._trace.reached(self.step_done)
        return self._end(self._requests.decided)

    def _end(self, stopped: str | None) -> Summary:
        self._trace.close()
        if self._state.saved_step != self.step_done and not self._state.saves_best:
            self.save()
        if (store := self._run.store) is not None:
            store.settle()
            if store.save_error is not None:
                raise store.save_error
        validates = self._run.components.validates
        summary = self._state.summary(
            self.final_hash(), stopped, data_end=self._run.data_end, validates=validates
        )
        self._run.log.ended(summary)
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
        return final_hash((part for part in parts if is_weight(part.name)), self._run.ranks.comm)

    @alone
    def save(self) -> bool:
        """Commit a checkpoint of the last whole step; False if it failed (a warning is printed).

        Nothing is written without a work directory, and with train.save=false.
        """
        return self._saves.save()

    def close(self) -> None:
        """Close the logs and release the lock of the work directory."""
        self._open.close()

    def _facts(self) -> Facts:
        store = self._run.store
        folder = store.path if store is not None else None
        return run_facts(self.config, self.step_done, self._state.last_loss, self.model.n_parameters, folder)

    def __repr__(self) -> str:
        return one_line("Trainer", self.config.name, self._facts())

    def _repr_html_(self) -> str:
        return html_table(self._facts().items(), title=f"Trainer '{self.config.name}'")

    def __enter__(self) -> Trainer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
