"""The state of a run: updates done, saved and skipped, times and rates, and the last metrics."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from mudd_core.base.types import Json
from mudd_core.config import Config
from mudd_core.config.train import save_steps
from mudd_core.run.build.components import Components
from mudd_core.run.loop.clock import Clock
from mudd_core.run.loop.update_guard import UpdateGuard
from mudd_core.run.records.engine import StepReport, kept
from mudd_core.run.records.events import Rewind, StepRecord, Summary, Validation, Validations
from mudd_core.run.store.metrics import RecordedValidations


class RunState:
    """The counters, times and last metrics of a run. A checkpoint contains `state()`, which `restore` loads."""

    def __init__(self, config: Config, components: Components) -> None:
        train = config.train
        self._config = config
        self._tokens_per_step = train.batch_size * train.seq_len
        self._flops_per_token, self._peak = components.flops_per_token, components.peak
        self.step_done = self.saved_step = 0
        self._extra_saves = save_steps(train.save_at)
        self.guard = UpdateGuard(train)
        self.unlogged: StepRecord | None = None  # the last update, if it has no log entry yet
        self.last_validation: Validation | None = None
        self.validations = Validations()
        self._saved_best: tuple[float, int] | None = None  # best validation in the checkpoint
        self._last_loss: float | None = None  # None if the loss was not finite, or before the first update
        self._earlier_seconds = 0.0
        self._begin = time.perf_counter()
        self._train_seconds = 0.0
        self._logged_at = (0, 0.0)
        ratio = 0.0 if config.eval.off else components.validated_slots / max(1, self._tokens_per_step)
        tokens = config.eval.every_tokens
        every = max(1, round(tokens / self._tokens_per_step)) if tokens else train.eval_every
        self.clock = Clock(train.steps, every, train.save_every, ratio, 0 if tokens else train.period_start)

    @property
    def seconds(self) -> float:
        """The wall time of the run so far, with the time before a resume."""
        return self._earlier_seconds + time.perf_counter() - self._begin

    def shorten(self, config: Config) -> None:
        """Use a config whose train.steps end where the data end."""
        self._config = config

    def begin_at(self, step: int) -> None:
        """Start at a step that another run has reached."""
        self.step_done = step
        self.guard.anchor = step

    def start(self) -> None:
        """Start to measure the time and the rate of steps."""
        self._begin = time.perf_counter()
        self._logged_at = (self.step_done, self._train_seconds)

    def took_step(
        self, report: StepReport, lr: float, seconds: float, metrics: Mapping[str, Json]
    ) -> StepRecord:
        """Count one more update, and return its record."""
        self.step_done += 1
        self._train_seconds += seconds
        self.clock.took_step(seconds)
        self._peak.took_step()
        # The rate is over the steps since the last log entry: one step is too short for a good measurement.
        steps_since, seconds_before = self._logged_at
        elapsed = self._train_seconds - seconds_before
        rate = (self.step_done - steps_since) * self._tokens_per_step / max(elapsed, 1e-9)
        self._last_loss = report.loss if math.isfinite(report.loss) else None
        return StepRecord(
            step=self.step_done,
            tokens=self.step_done * self._tokens_per_step,
            loss=report.loss,
            lr=lr,
            grad_norm=report.grad_norm,
            tokens_per_second=rate,
            peak_share=self._peak.fraction(rate * self._flops_per_token),
            seconds=self.seconds,
            skipped=not kept(report),
            rewinds=len(self.guard.rewinds),
            targets=int(report.weight_sum),
            metrics=metrics,
        )

    @property
    def last_loss(self) -> float | None:
        """The loss of the last update in nats; None if it was not finite, or before the first update."""
        return self._last_loss

    def logged(self, record: StepRecord) -> None:
        """Measure the rate of steps from this record on."""
        self._logged_at = (record.step, self._train_seconds)

    def validated(self, result: Validation) -> None:
        """Store a validation and its time."""
        self.last_validation = result
        self.validations.add(result.step, result.val_loss if result.targets else math.nan)
        self.clock.took("eval", result.seconds)

    def due(self, every: int) -> bool:
        """Return whether work with an interval of `every` updates is due.

        It is also due after each epoch of train.epochs and at the end.
        """
        train = self._config.train
        of_epoch = train.epochs > 0 and self.step_done % max(1, train.steps // train.epochs) == 0
        at_end = self.step_done >= train.steps or of_epoch
        return self.step_done > 0 and (at_end or train.ends_period(every, self.step_done))

    def validation_due(self) -> bool:
        """Return whether this step must be validated, by eval.at_start, eval.every_tokens or train.eval_every.

        The last step is always due. With eval.off only eval.at_start applies.
        """
        if self.last_validation is not None and self.last_validation.step == self.step_done:
            return False
        settings = self._config.eval
        if self.step_done == 0:
            return settings.at_start
        if settings.off:
            return False
        if not settings.every_tokens:
            return self.due(self._config.train.eval_every)
        before, now = (
            step * self._tokens_per_step // settings.every_tokens
            for step in (self.step_done - 1, self.step_done)
        )
        return now > before or self.due(0)

    def reached(self) -> bool:
        """Return whether this step's validation loss is at most eval.target_loss, if the target applies to the step."""
        target, last = self._config.eval.target_loss, self.last_validation
        if not target or last is None or last.step != self.step_done:
            return False
        if not self._config.target_counts_at(last.step):
            return False
        return last.targets > 0 and last.val_loss <= target

    def out_of_patience(self) -> bool:
        """Return whether the last train.patience validations have not improved on the best one."""
        return 0 < self._config.train.patience <= self.validations.since_best

    @property
    def saves_best(self) -> bool:
        """True if only steps with the best validation so far are saved."""
        return self._config.train.save_policy == "best"

    def save_due(self) -> bool:
        """Return whether a scheduled save, which a rewind can go back to, is due; not in a streak of bad updates."""
        if self.guard.skips_in_row:
            return False
        if self.saves_best:
            return self._is_best()
        return self.due(self._config.train.save_every)

    def extra_save_due(self) -> bool:
        """Return whether train.save_at contains this step, which is saved with any save policy."""
        return self.step_done in self._extra_saves

    def best_save_due(self) -> bool:
        """Return whether this step must be saved because its validation is the best one so far."""
        if self.guard.skips_in_row or not (self.saves_best or self._config.train.keep_best):
            return False
        return self._is_best() and self.saved_step != self.step_done

    def best_first(self) -> list[int]:
        """Return the validated steps from the best to the worst, if train.keep_best; the first saved one is kept."""
        return self.validations.best_first() if self._config.train.keep_best else []

    def _is_best(self) -> bool:
        best = self.validations.best
        return best is not None and best[1] == self.step_done > 0

    def saved(self, step: int, seconds: float) -> None:
        """Record that a step is saved, and the time that the run lost."""
        self.saved_step = step
        self.clock.took("save", seconds)

    def state(self) -> dict[str, Any]:
        """Return the part of a checkpoint's state that `restore` reads."""
        best = self.validations.best
        return {
            "step": self.step_done,
            **self.guard.state(),
            "last_loss": self._last_loss,
            "seconds": self.seconds,
            **({"best": list(best)} if self.saves_best and best else {}),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Load the state of a checkpoint."""
        self.step_done = self.saved_step = int(state["step"])
        self.guard.restore(state)
        self._last_loss = state["last_loss"]
        self._earlier_seconds = float(state["seconds"])
        self._saved_best = _best_in(state)

    def recall(self, recorded: RecordedValidations) -> None:
        """Load the recorded validations up to this step, after `restore` or `go_back`."""
        self.last_validation = recorded.last
        self.validations = Validations(recorded.losses)
        if self.validations.best is None and self._saved_best is not None:  # metrics.jsonl is missing
            loss, step = self._saved_best
            self.validations.add(step, loss)

    def go_back(self, from_step: int, state: Mapping[str, Any]) -> Rewind:
        """Load the state of an earlier checkpoint, but keep the elapsed time; return the rewind."""
        self._earlier_seconds, self._begin = self.seconds, time.perf_counter()
        self.step_done = self.saved_step = int(state["step"])
        self.unlogged, self._last_loss = None, state["last_loss"]
        self._saved_best = _best_in(state)
        self._logged_at = (self.step_done, self._train_seconds)
        return self.guard.go_back(from_step, state)

    def summary(
        self,
        final_hash: str,
        stopped: str | None,
        *,
        data_end: bool = False,
        validates: bool = True,
        warnings: tuple[str, ...] = (),
    ) -> Summary:
        """Return the summary of a call of fit()."""
        valid, best = self.last_validation, self.validations.best
        return Summary(
            name=self._config.name,
            step=self.step_done,
            steps=self._config.train.steps,
            tokens=self.step_done * self._tokens_per_step,
            loss=self._last_loss,
            val_loss=valid.val_loss if valid else None,
            val_bits_per_byte=valid.val_bits_per_byte if valid else None,
            skipped_steps=len(self.guard.skipped),
            seconds=self.seconds,
            final_hash=final_hash,
            stopped=stopped,
            rewinds=len(self.guard.rewinds),
            reached=stopped is None and self.reached(),
            data_end=data_end and stopped is None,
            data_epochs=self._config.data.epochs,
            validates=validates,
            best_val_loss=best[0] if best else None,
            best_step=best[1] if best else None,
            since_best=self.validations.since_best,
            out_of_patience=stopped is None
            and self.step_done < self._config.train.steps
            and self.out_of_patience(),
            warnings=warnings,
        )


def _best_in(state: Mapping[str, Any]) -> tuple[float, int] | None:
    """Return loss and step of the best validation in a checkpoint's state; None without train.save_policy=best."""
    best = state.get("best")
    return (float(best[0]), int(best[1])) if best else None
