"""The Trainer: step, report, validate, save, stop, resume.

A step is a transaction: batch, forward, backward, finite check, update, then the step counter. A checkpoint contains
all state that later steps depend on, so that a resumed run has the same bits as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Never, SupportsIndex

from mudd_core.base.arguments.checks import require_flag
from mudd_core.base.arguments.known import Hinted, known_arguments, public_signature
from mudd_core.base.errors import StopRequestedError, UserError
from mudd_core.base.in_use import alone
from mudd_core.base.other_names import TRAINER
from mudd_core.base.show.tables import html_table
from mudd_core.base.surroundings import notes_stream
from mudd_core.base.types import Array, Int32
from mudd_core.checkpoint import final_hash, is_weight
from mudd_core.config import Config
from mudd_core.dist import Comm
from mudd_core.engine.bare_model import require_model
from mudd_core.engine.optimizer_groups import learning_rate
from mudd_core.run.build.assembly import assemble
from mudd_core.run.loop import signals
from mudd_core.run.loop.asked_run import asked_run, run_at_step
from mudd_core.run.loop.at_step import checked_step, require_step_of_run, train_to_step
from mudd_core.run.loop.callback import Callback
from mudd_core.run.loop.learning_watch import LearningWatch
from mudd_core.run.loop.lost_source import LostSource, SourceLostError
from mudd_core.run.loop.next_batch import NextBatch
from mudd_core.run.loop.opening import Assemble, lines_of_start, open_run
from mudd_core.run.loop.requests import Requests
from mudd_core.run.loop.saves import Saves
from mudd_core.run.loop.training_loop import TrainingLoop
from mudd_core.run.loop.updates import Updates
from mudd_core.run.loop.validator import Validator
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.events import Sample, StepRecord, Summary, Validation
from mudd_core.run.report.history import History
from mudd_core.run.report.live import Live, Nothing, live
from mudd_core.run.report.object_text import Facts, one_line, run_facts
from mudd_core.run.report.progress import Progress
from mudd_core.run.report.trace import Trace
from mudd_core.run.store.longer import can_be_longer, in_python
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.run.store.metrics import rows_up_to
from mudd_core.run.store.read_store import ReadStore
from mudd_core.run.store.run_store import RunStore

if TYPE_CHECKING:
    from mudd_core.data.tokenizers.tokenizer import Tokenizer
    from mudd_core.engine.model import Model


_HIDDEN = "progress assemble fields"  # parameters for the command line


class Trainer(NextBatch, Hinted):
    """A trainer of one model: `t = mc.Trainer("tiny.py", "runs/x"); t.step(); t.fit(); t.validate(); t.model`.

    Use a Trainer and its model from one thread at a time.

    config: a config, the name of a config file, or the folder of a run to resume: mc.Trainer("runs/x").
    workdir: a folder, which is resumed if it has this run; None writes only the token cache.
    model: a model to train further instead of a new one from config.model; `t.step(batch)` then opens no data. A model
    from interop.load_original whose loss is over all positions keeps that loss.
    comm: the ranks of the run. Each rank has a Trainer, and all ranks must call the same methods; rank 0 writes and
    prints. callback: a function of this Trainer, which fit() calls after each step; see fit(). trust_code: as for
    mc.load_run.

    at_step: open a saved run in memory after this many of its updates, with the run's bits: mc.Trainer("runs/x",
    at_step=100).step() is update 101 again. The run may be finished, or still train; nothing in its folder changes.
    """

    _other_names = TRAINER

    # progress: prints the lines of the run; with None only fit() prints. fields: options of a reference implementation
    # by name, for the first lines of its log style. workdir may be a RunStore.
    @known_arguments("Trainer", _HIDDEN)
    def __init__(
        self,
        config: Config | str | Path | None = None,
        workdir: str | Path | RunStore | None = None,
        model: Model | None = None,
        *,
        progress: Progress | None = None,
        comm: Comm | None = None,
        callback: Callable[[Trainer], None] | None = None,
        assemble: Assemble = assemble,
        fields: Mapping[str, object] | None = None,
        trust_code: bool = False,
        at_step: int | None = None,
    ) -> None:
        ranks = Ranks(comm)
        if at_step is None:
            asked, workdir = asked_run(config, workdir, trust_code=trust_code)
        else:
            path, at_step = checked_step(at_step, config, workdir, model, ranks.world)
            asked, workdir = run_at_step(path, at_step, trust_code=trust_code)
        if model is not None:
            require_model(model)
        if not isinstance(progress, Progress | None):
            raise TypeError(
                f"[Trainer] progress: expected a Progress, got {progress!r}; type trainer.fit(progress={progress!r})"
            )
        self._callback = self._called = Callback(callback, "Trainer")
        self._prints, self._closed = progress is not None, False
        self._history = History()
        self._open = ExitStack()  # the parts that close() closes, the last one first
        try:
            run, changed = open_run(
                asked, workdir, model, ranks, progress, fields, assemble, self._open, self._history
            )
            self._run = run
            self.engine, self._state, self._watch = run.engine, run.state, run.watch
            self.in_use = self.model.in_use
            requests = Requests(ranks, run.store, run.config.train)
            source = LostSource(run.config.data.retries, run.reopen_rows, run.journal.source_lost, run.phases)
            learning = LearningWatch(run.config, lambda: run.components.vocabulary, run.journal.warned)
            self._saves = Saves(run, learning)
            self._updates = Updates(run, source, requests, self._saves)
            folder = run.store.folder if run.store and ranks.first else None
            trace = Trace(run.config.train.profile, folder, self.engine, run.journal.said)
            self._open.callback(trace.close)
            self._validator = Validator(run, source, requests, self._saves, trace, learning)
            self._loop = TrainingLoop(
                run, requests, self._updates, self._validator, self._saves, trace, learning
            )
            if not self._saves.resume(changed) and model is None and run.config.start.load_parameters_path:
                self._saves.begin_from_source()
            if folder is not None and (step := self.step_done):
                self._history.continues(lambda: rows_up_to(folder, step))
            run.journal.opened(lambda: lines_of_start(run, changed))
            train_to_step(run, self._updates)
        except BaseException:
            self.close()
            raise
        self._state.start()

    @property
    def config(self) -> Config:
        """The config of the run: the passed config with the changes that a resume or the data require."""
        return self._run.config

    @property
    def model(self) -> Model:
        """The model in training; its parameters are read-only views."""
        return self._run.components.model

    @property
    @alone
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer of the data; None if the data are token ids without one."""
        self._run.need_text()
        return self._run.components.tokenizer

    def validation_batches(self) -> Iterable[Mapping[str, Int32]]:
        """Return the batches that a validation reads."""
        self._run.need_text()
        return self._run.components.validation_batches()

    @property
    def step_done(self) -> int:
        """The number of updates so far, including updates before a resume."""
        return self._state.step_done

    @property
    def lr(self) -> float:
        """The learning rate of the next update, before the factors of optim.groups; the schedule decides it."""
        return learning_rate(self.config, self.step_done)

    if not TYPE_CHECKING:  # type checkers report an assignment themselves

        @lr.setter
        def lr(self, value):
            raise AttributeError(
                f"[Trainer] lr: the schedule decides the rate; type mc.Trainer(config.replace('optim.lr', {value!r}))"
            )

    @property
    def seconds(self) -> float:
        """The wall time of the run so far in seconds, including the time before a resume."""
        return self._state.seconds

    # ---- one step -----------------------------------------------------------------------------------------

    @alone
    def step(self, batch: Mapping[str, Array] | None = None) -> StepRecord:
        """Run one update and return its record.

        batch: train.batch_size sequences of train.seq_len tokens; None uses the run's next batch.
        Raise StopRequestedError if a stop request dropped the update, and DivergedError after too many bad updates. If
        a skipped update makes the run go back to a checkpoint, step_done is below the record's step.
        """
        self._require_open(trains=True)
        require_step_of_run(self._run)
        if batch is None:
            self._run.need_text()
        with signals.interrupt_later():
            record = self._updates.make_update(batch)
        if record is None:
            raise StopRequestedError(f"[train] stop requested; step {self.step_done + 1} was dropped")
        return record

    # ---- the loop -----------------------------------------------------------------------------------------

    @alone
    @known_arguments("fit")
    def fit(
        self,
        steps: int | None = None,
        progress: bool = True,
        callback: Callable[[Trainer], None] | None = None,
    ) -> Summary:
        """Train until the end of the run or a stop request, save, and return a summary.

        steps: the largest count of further updates; None for all. The next call continues with the same bits as a run
        without the interruption. progress: show a line and the curve in a notebook, elsewhere one line on standard
        error; a Trainer with a `progress` prints only there. Ctrl-C in a notebook or script ends the step, saves,
        and then raises KeyboardInterrupt; another fit() continues. Raise SaveError if the last save failed.

        callback: called with this Trainer after each step, by every rank; it replaces the callback of the constructor.
        It may read everything, call validate() and save(), and set weights (the run then has other bits than its config
        alone gives). It may not call fit() or step(). If it raises, the run is saved and fit() ends with its error.
        """
        require_flag("fit", "progress", progress)
        self._require_open(trains=True)
        called = self._callback if callback is None else Callback(callback, "fit")
        if steps is not None and not hasattr(steps, "__index__"):
            raise TypeError(f"[fit] steps: expected a whole number, or None for all, got {steps!r}")
        if steps is not None and index(steps) < 0:
            raise ValueError(f"[fit] steps: expected at least 0, or None for all, got {steps}")
        self._run.need_text()
        self._say_if_finished(progress)
        view = self._view() if progress else Nothing()
        self._called = called
        try:
            with self._training():
                for record in self._loop.records(steps, settle=bool(called)):
                    view.step(record, self._state.clock.seconds_left(record.step))
                    called(self, self._save_unsaved)
        finally:
            view.close()
        assert self._loop.summary is not None
        return self._loop.summary

    def __iter__(self) -> Iterator[StepRecord]:
        """Train like fit(), and yield the record of each update: `for record in trainer: print(record.loss)`.

        The run is saved after the last update. After a `break` nothing is saved; call save().
        """
        self._require_open(trains=True)
        self._run.need_text()
        records = self._loop.records(None, settle=True)
        while True:
            with self.in_use, self._training():
                record = next(records, None)
            if record is None:
                return
            yield record

    @contextmanager
    def _training(self) -> Iterator[None]:
        """Run a part of the loop: watch for hanging ranks, delay Ctrl-C, and save if a data source is lost."""
        self._watch.begin()
        try:
            with signals.interrupt_later():
                yield
        except BaseException as error:
            if isinstance(error, SourceLostError):
                self._save_unsaved()
            self._saves.finish_after(error)
            self._run.journal.broke_off()
            raise
        finally:
            self._watch.end()

    def _save_unsaved(self) -> None:
        if self._state.saved_step != self.step_done:
            self._saves.save()

    def _say_if_finished(self, progress: bool) -> None:
        """Print a note if there are no steps left; the command line prints its own."""
        steps, store = self.config.train.steps, self._run.store
        if not progress or self._prints or not self._run.ranks.first or self.step_done < steps:
            return
        text = f"note: [fit] the run is finished: {self.step_done} of {steps} steps"
        if store is not None and can_be_longer(self.config):
            text += f"; to train {steps} more: trainer.close(); {in_python(str(store.folder), self.config, steps)}"
        print(text, file=notes_stream())

    def _view(self) -> Live:
        if self._prints or not self._run.ranks.first:
            return Nothing()
        return live(self.config.name, self.config.train.steps, self._history)

    @property
    def history(self) -> Metrics:
        """The updates as arrays by name: step, loss, lr, grad_norm, tokens_per_second and more.

        They are the updates of this Trainer, after the logged updates of a resumed run. Above 8 MB the history drops
        every second update.
        """
        return self._history.updates

    @property
    def validations(self) -> Metrics:
        """The scheduled validations, as arrays by name: step, val_loss, val_bits_per_byte and more."""
        return self._history.validations

    @property
    def samples(self) -> list[Sample]:
        """The samples (step, prompt, text) that this Trainer has generated for sample.every."""
        return list(self._validator.samples.written)

    # ---- validation, saving, resuming ---------------------------------------------------------------------

    @alone
    def validate(self) -> Validation:
        """Return the loss and bits per byte on the held-out text with the current weights.

        The result is neither logged nor used for the best checkpoint.
        """
        self._require_open()
        self._run.need_text()
        result = self._validator.measure()
        if result is None:
            raise StopRequestedError("[train] stop requested; the validation was dropped")
        return result

    @alone
    def final_hash(self) -> str:
        """Return the SHA-256 of all weights; equal for equal runs."""
        parts = self.engine.state_parts()
        return final_hash((part for part in parts if is_weight(part.name)), self._run.ranks.comm)

    @alone
    def save(self) -> bool:
        """Commit a checkpoint of the last complete step; return False, with a warning, if that failed.

        Nothing is written without a work directory or with train.save=false.
        """
        self._require_open()
        if isinstance(store := self._run.store, ReadStore):
            store.require_writable()
        return self._saves.save()

    def close(self) -> None:
        """Wait for a save in progress, close the logs and release the lock of the work directory.

        Then methods that train, validate or save raise.
        model, config and history remain usable.
        """
        self._closed = True
        self._open.close()

    def _facts(self) -> Facts:
        store = self._run.store
        folder = store.folder.path if store is not None else None
        return run_facts(self.config, self.step_done, self._state.last_loss, self.model.n_parameters, folder)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Never:
        raise TypeError(
            "[Trainer] a Trainer cannot be copied or pickled; type trainer.save() and mc.Trainer(folder), or "
            "copy.deepcopy(trainer.model)"
        )

    def __repr__(self) -> str:
        return one_line("Trainer", self.config.name, self._facts())

    def _repr_html_(self) -> str:
        return html_table(self._facts().items(), title=f"Trainer '{self.config.name}'")

    def _require_open(self, *, trains: bool = False) -> None:
        if trains:
            self._called.require_done()
        if self._closed:
            folder = self._run.store.folder if self._run.store is not None else None
            way_out = f"mc.Trainer('{folder}') continues its run" if folder else "create a new Trainer"
            raise UserError(f"[Trainer] this Trainer is closed; {way_out}")

    def __enter__(self) -> Trainer:
        self._require_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    __signature__ = public_signature(__init__, _HIDDEN, workdir="str | Path | None")
