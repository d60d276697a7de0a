"""The validations of a run, and the text samples after validations (sample.every).

Rank 0 generates a sample alone, or all ranks together if they need each other's weights. The random numbers come from
sample.seed and are separate from the run's. A sample therefore changes no bit of the training, and a failed sample does
not end the run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

from mudd_core.config.schema import validation_batch
from mudd_core.run.build.protocols import mean_of
from mudd_core.run.loop import signals
from mudd_core.run.loop.evaluate import evaluate
from mudd_core.run.loop.learning_watch import LearningWatch
from mudd_core.run.loop.lost_source import LostSource
from mudd_core.run.loop.requests import Requests
from mudd_core.run.loop.saves import Saves
from mudd_core.run.loop.session import Session
from mudd_core.run.records.events import BatchSums, Sample, Validation
from mudd_core.run.records.phases import Phase
from mudd_core.run.report.sample import write_text
from mudd_core.run.report.trace import Trace


class _StoppedError(Exception):
    """The signal that a stop was requested while a sample was generated."""


class Samples:
    """The samples of a run. written: the samples of this process, ascending by step."""

    def __init__(self, run: Session, trace: Trace) -> None:
        self._run, self._trace = run, trace
        self._failed: set[str] = set()
        self.written: list[Sample] = []

    def write_if_due(self) -> None:
        """Generate a sample if one is due at this step, which must have been validated, and there is none yet."""
        run, step = self._run, self._run.state.step_done
        validation = run.state.last_validation
        if validation is None or validation.step != step or not (run.ranks.first or run.together):
            return
        due = run.ranks.from_first(lambda: self._is_due(step)) if run.together else self._is_due(step)
        if not due:
            return
        try:
            with self._trace.span("sample"), run.phases.phase(Phase.EVALUATION):
                sample = self._sample(step)
        except _StoppedError:  # the resumed run generates the sample
            return
        except Exception as error:
            self._say_failed(step, str(error) or type(error).__name__)
            return
        if run.ranks.first:
            # The run may have gone back to a checkpoint, so drop samples of later steps.
            self.written = [*(one for one in self.written if one.step < step), sample]
            run.journal.sampled(sample)

    def _is_due(self, step: int) -> bool:
        every, store = self._run.config.sample.every, self._run.store
        here = self.written[-1].step if self.written else -1
        last = here if store is None else store.logs.files.last_sample
        if not every or step <= last:
            return False
        return step // every > last // every or step >= self._run.config.train.steps

    def _sample(self, step: int) -> Sample:
        run, settings = self._run, self._run.config.sample
        tokenizer, model = run.components.tokenizer, run.components.model
        if tokenizer is None:
            raise ValueError("the data are ids without a tokenizer; set sample.every=0")

        def alive(text: str) -> None:
            run.watch.phase("evaluate", step)
            stopped = signals.stop_reason() is not None
            if run.ranks.any(stopped) if run.together else stopped:
                raise _StoppedError

        run.engine.release()  # free the engine's memory for the packed weights of decoding
        with model.brief_decoding(), warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # decoding may warn that it differs from training, which is expected here
            text = write_text(model, tokenizer, settings.prompt, settings, alive)
        return Sample(step, settings.prompt, text)

    def _say_failed(self, step: int, reason: str) -> None:
        """Report a failed sample, once for each reason."""
        if reason not in self._failed:
            self._failed.add(reason)
            self._run.journal.not_sampled(step, reason)


class Validator:
    """The scheduled validations of a run, with the samples after them."""

    def __init__(
        self,
        run: Session,
        source: LostSource,
        requests: Requests,
        saves: Saves,
        trace: Trace,
        learning: LearningWatch,
    ) -> None:
        self._run, self._source, self._learning = run, source, learning
        self._requests, self._saves, self._trace = requests, saves, trace
        self.samples = Samples(run, trace)

    def validate_if_due(self) -> bool:
        """Validate, save a best step and generate a sample if they are due; return False if a stop interrupted it."""
        state = self._run.state
        if not self._run.components.validates:
            return True
        if state.validation_due() and not self._validate():
            return False
        self.samples.write_if_due()
        return True

    def _validate(self) -> bool:
        """Validate this step; return False if a stop interrupted it."""
        run, state = self._run, self._run.state
        slots = validation_batch(run.config) * run.config.train.seq_len
        run.journal.validating(state.step_done, run.components.validated_slots // slots)
        with self._trace.span("evaluation"):
            result = self.measure(stop=self._stops, report=run.journal.batch_validated)
        if result is None:
            self._stops()
            return False
        state.validated(result)
        run.journal.validated(result)
        self._learning.validated(result)
        if state.best_save_due():
            self._saves.save(waits=False)
        return True

    def _stops(self) -> bool:
        step = self._run.state.step_done
        self._run.watch.phase("evaluate", step)
        self._requests.agree()
        return self._requests.stop(step) is not None

    def measure(
        self,
        stop: Callable[[], bool] = lambda: False,
        report: Callable[[BatchSums], None] = lambda sums: None,
    ) -> Validation | None:
        """Return the loss on the held-out data with the current weights; None if `stop` became true.

        Once the mean of train.average has started, the data are evaluated again with it. report: called with the sums
        of each batch, of the current weights.
        """
        with self._run.phases.phase(Phase.EVALUATION):
            return self._measured(stop, report)

    def _measured(self, stop: Callable[[], bool], report: Callable[[BatchSums], None]) -> Validation | None:
        run, step = self._run, self._run.state.step_done
        run.engine.settle()
        run.watch.phase("evaluate", step)

        def once(report: Callable[[BatchSums], None]) -> Validation | None:
            return evaluate(
                run.engine,
                run.components.validation_batches(),
                step=step,
                bytes_per_target=run.components.bytes_per_target,
                stop=stop,
                ranks=run.ranks,
                together=run.together,
                mean=mean_of(run.config),
                report=report,
            )

        def whole() -> Validation | None:
            found = once(report)
            if found is None or run.engine.average is None or not run.engine.average.updates:
                return found
            with run.engine.averaged():
                mean = once(lambda sums: None)
            if mean is None:
                return None
            return replace(found, val_loss_average=mean.val_loss, seconds=found.seconds + mean.seconds)

        # With several ranks an interrupted validation cannot restart, because ranks exchange sums between batches.
        return whole() if run.ranks.world > 1 else self._source.reading(step, whole)
