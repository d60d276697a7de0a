"""The validations of a run: those that are due, and those that are asked for."""

from __future__ import annotations

from collections.abc import Callable

from mudd_core.run.build.protocols import mean_of
from mudd_core.run.loop.evaluate import evaluate
from mudd_core.run.loop.lost_source import LostSource
from mudd_core.run.loop.requests import Requests
from mudd_core.run.loop.samples import Samples
from mudd_core.run.loop.saves import Saves
from mudd_core.run.loop.session import Session
from mudd_core.run.records.events import BatchSums, Validation
from mudd_core.run.report.trace import Trace


class Validator:
    """Measures a run on its held-out rows."""

    def __init__(
        self, run: Session, source: LostSource, requests: Requests, saves: Saves, trace: Trace
    ) -> None:
        self._run, self._source = run, source
        self._requests, self._saves, self._trace = requests, saves, trace
        self._samples = Samples(run, trace)

    def validate_if_due(self) -> bool:
        """Validate and sample once at this step if it is time, save a best one; False if a stop interrupted it."""
        state = self._run.state
        if not self._run.components.validates:
            return True
        if state.validation_due() and not self._validate():
            return False
        self._samples.write_if_due()
        return True

    def _validate(self) -> bool:
        """Validate this step; False if a stop interrupted it."""
        run, state = self._run, self._run.state
        run.journal.validating(state.step_done)
        with self._trace.span("evaluation"):
            result = self.measure(stop=self._stops, report=run.journal.batch_validated)
        if result is None:
            self._stops()
            return False
        state.validated(result)
        run.journal.validated(result)
        run.learning.validated(result)
        if state.best_save_due():
            self._saves.save()
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
        """Return the loss of the held-out rows with the weights as they are now; None if `stop` became true.

        report: called with the sums of each batch.
        """
        run, step = self._run, self._run.state.step_done
        run.engine.settle()
        run.watch.phase("evaluate", step)

        def whole() -> Validation | None:
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

        # Ranks exchange sums between batches: one of them cannot begin again alone.
        return whole() if run.ranks.world > 1 else self._source.reading(step, whole)
