"""Warnings about a run that has diverged or has nothing to learn from, which otherwise would end as a success."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from mudd_core.config import Config
from mudd_core.config.pipelines import spec_of
from mudd_core.run.records.events import StepRecord, Validation
from mudd_core.run.records.facts import WINDOW, guessing_loss, guessing_text
from mudd_core.run.store.metrics import RecordedValidations

SETTLED = 20  # updates before a loss is compared, if the warm-up is shorter
# The logits of an untrained model are not all equal, so its loss may exceed the loss of guessing by this many nats.
UNTRAINED = 1.0
_RATE = "lower optim.lr or raise optim.warmup_steps"


class LearningWatch:
    """Checks for losses above the loss of guessing, gradients of exactly 0, and batches without targets.

    Each kind of problem is reported once. warnings: the messages so far.
    """

    def __init__(
        self, config: Config, vocabulary: Callable[[], int], warn: Callable[[str, int], None]
    ) -> None:
        """Start without records. vocabulary: returns the count of tokens in use. warn: called with text and step."""
        self._vocabulary, self._warn = vocabulary, warn
        self._settled = max(config.optim.warmup_steps, SETTLED)
        self._random = spec_of(config.data.pipeline).endless  # nothing can be learned from random tokens
        self._losses: deque[tuple[int, float]] = deque(maxlen=WINDOW)  # (step, loss) of the logged updates
        self._targets: deque[int] = deque(maxlen=WINDOW)  # targets of each batch that are in the loss
        self._validation: Validation | None = None
        self._warned: set[str] = set()
        self.warnings: list[str] = []

    def recall(self, recorded: RecordedValidations) -> None:
        """Load the losses that a resumed run has logged up to its checkpoint."""
        self._losses.extend(recorded.updates)
        self._validation = recorded.last

    def took_step(self, record: StepRecord, *, logged: bool) -> None:
        """Check an update, which may have been skipped, and warn if the run does not learn."""
        while self._losses and self._losses[-1][0] >= record.step:  # drop updates that a rewind has undone
            self._losses.pop()
        self._targets.append(record.targets)
        if len(self._targets) == WINDOW:
            self._look_for_targets(record.step)
        if record.skipped:
            return
        if record.grad_norm == 0.0 and record.targets:
            self._say(
                "gradient",
                record.step,
                "the gradient is exactly 0, so nothing is learned from this batch: the loss does "
                f"not depend on the weights that train, or activations are saturated; {_RATE}, and "
                "check train.trainable",
            )
        if logged:
            self._losses.append((record.step, record.loss - record.metric("aux_loss", 0.0)))
            if len(self._losses) == WINDOW and self._losses[0][0] > self._settled:
                self._compare_mean(record.step)

    def validated(self, result: Validation) -> None:
        """Check a scheduled validation."""
        self._validation = result
        if not result.targets:
            text = (
                "no target of the validation contributes to the loss (all are negative), so there is no "
                "validation loss; check the targets of the data"
            )
            self._say("validation targets", result.step, text)
        elif result.step > self._settled:
            self._compare_validation(result)

    def ended(self, step: int) -> None:
        """Check the last records at the end of a run, also if it was shorter than WINDOW updates."""
        if self._targets:
            self._look_for_targets(step)
        if self._losses:
            self._compare_mean(step)
        if self._validation is not None and self._validation.targets and self._validation.step == step:
            self._compare_validation(self._validation)

    def _look_for_targets(self, step: int) -> None:
        if any(self._targets):
            return
        batches = f"the last {len(self._targets)} batches" if len(self._targets) > 1 else "the batch"
        self._say(
            "targets",
            step,
            f"no target of {batches} contributes to the loss (all are negative), so the loss is 0 "
            "and nothing is learned; check the targets of the data",
        )

    def _compare_mean(self, step: int) -> None:
        settled = [loss for at, loss in self._losses if at > self._settled]
        losses = settled or [loss for _, loss in self._losses]
        mean = math.fsum(losses) / len(losses)
        if mean > self._limit(bool(settled)):
            updates = f"{len(losses)} logged updates" if len(losses) > 1 else "logged update"
            self._say(
                "loss",
                step,
                f"the mean loss of the last {updates}, {mean:.4f}, is above {guessing_text(self._vocabulary())}: the "
                f"training has diverged or has learned nothing; {_RATE}",
            )

    def _compare_validation(self, result: Validation) -> None:
        if result.val_loss > self._limit(result.step > self._settled):
            self._say(
                "validation",
                result.step,
                f"the validation loss {result.val_loss:.4f} is above "
                f"{guessing_text(self._vocabulary())}: the training has diverged, or the held-out "
                f"data differ from the training data; {_RATE}",
            )

    def _limit(self, settled: bool) -> float:
        """Return the largest loss without a warning. settled: the loss is from after the warm-up."""
        spare = 0.0 if settled and not self._random else UNTRAINED
        return guessing_loss(self._vocabulary()) + spare

    def _say(self, kind: str, step: int, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self.warnings.append(f"step {step}: {text}")
            self._warn(self.warnings[-1], step)
