"""Texts at validations (sample.every): what the model writes with the weights that were just validated.

Rank 0 writes them alone, or where ranks need each other's weights with all of them, with the draws of sample.seed:
counters, which no other part of a run reads. A text changes no bit of the training, and one that fails ends no run.
"""

from __future__ import annotations

import warnings

from mudd_core.run.loop import signals
from mudd_core.run.loop.session import Session
from mudd_core.run.records.events import Sample
from mudd_core.run.report.sample import write_text
from mudd_core.run.report.trace import Trace


class _StoppedError(Exception):
    """A stop was asked for while a text was written."""


class Samples:
    """Writes the texts of a run that are due."""

    def __init__(self, run: Session, trace: Trace) -> None:
        self._run, self._trace = run, trace
        self._failed: set[str] = set()

    def write_if_due(self) -> None:
        """Write a text if this step was validated, is due and has none yet; all weights of its update are here."""
        run, step = self._run, self._run.state.step_done
        validation = run.state.last_validation
        if validation is None or validation.step != step or not (run.ranks.first or run.together):
            return
        due = run.ranks.from_first(lambda: self._is_due(step)) if run.together else self._is_due(step)
        if not due:
            return
        try:
            with self._trace.span("sample"):
                sample = self._sample(step)
        except _StoppedError:  # the resumed run writes it
            return
        except Exception as error:
            self._say_failed(step, str(error) or type(error).__name__)
            return
        if run.ranks.first:
            run.journal.sampled(sample)

    def _is_due(self, step: int) -> bool:
        every, store = self._run.config.sample.every, self._run.store
        here = self._run.history.samples
        last = store.logs.files.last_sample if store is not None else here[-1].step if here else -1
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

        run.engine.release()  # packed weights of decoding take its place
        with model.brief_decoding(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # how decoding differs from training is no news in its log
            text = write_text(model, tokenizer, settings.prompt, settings, alive)
        return Sample(step, settings.prompt, text)

    def _say_failed(self, step: int, reason: str) -> None:
        """Report each reason once in a run of this process."""
        if reason not in self._failed:
            self._failed.add(reason)
            self._run.journal.not_sampled(step, reason)
