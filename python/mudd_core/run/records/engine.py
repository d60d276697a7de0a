"""The interface between the training loop and the engine, and the report of one update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from mudd_core import _core
from mudd_core.base.types import Array, Json
from mudd_core.checkpoint import StatePart
from mudd_core.engine.evaluation_sums import EvaluationSums
from mudd_core.engine.weight_average import WeightAverage
from mudd_core.engine.weight_norms import Squares


class StepReport(Protocol):
    """The engine's report of one update."""

    @property
    def loss(self) -> float:
        """The loss: nats divided by the denominator of loss.normalize."""

    @property
    def grad_norm(self) -> float:
        """The norm of the mean gradient before clipping."""

    @property
    def finite(self) -> bool:
        """True if loss and gradient norm are finite. If False, no update was made."""

    @property
    def spike(self) -> bool:
        """True if the loss or gradient norm was finite but above its limit, so that no update was made."""

    @property
    def spoilt(self) -> bool:
        """True if the update wrote a non-finite weight or moment."""

    @property
    def stopped(self) -> bool:
        """True if a stop was requested before the update, so that nothing has changed."""

    @property
    def weight_sum(self) -> float:
        """The number of counted targets in the batch."""

    @property
    def flags(self) -> int:
        """The flags that all ranks passed to the step, combined."""


def kept(report: StepReport) -> bool:
    """Return True if the update was made and is valid."""
    return report.finite and not report.spike and not report.spoilt


class Evaluator(Protocol):
    """The part of a model or engine that validation uses."""

    def evaluate(self, batch: Mapping[str, Array]) -> tuple[float, int, int] | EvaluationSums:
        """Return summed nats, counted and guessed targets of a batch; with a teacher or for pairs, further sums."""


class LoopEngine(Evaluator, Protocol):
    """The part of the engine that the loop uses. Tests replace it by a small one."""

    batcher: Any
    average: WeightAverage | None

    def train_step(
        self,
        step: int,
        lr: float,
        batch: Mapping[str, Array] | None = None,
        limits: tuple[float, float] | None = None,
        flags: int = 0,
        settle: bool = True,
        done: int | None = None,
    ) -> StepReport:
        """Take a step on the batch, or else on batch `step` (from 0) of the batcher.

        limits: the largest accepted loss and gradient norm; above either, the update is skipped. flags: bits that are
        sent to all ranks. settle: False if another step follows. done: the steps before this one.
        """

    @property
    def step_seconds(self) -> Mapping[str, float]:
        """The seconds of the last step by stage: members of Phase, and HIDDEN (records/phases.py)."""

    def averaged(self) -> AbstractContextManager[None]:
        """Return a block in which the weights are the averaged ones of train.average; all ranks enter it together."""

    def weight_squares(self) -> Squares:
        """Return the squares of this rank's weights, summed by blocks."""

    def settle(self) -> None:
        """Wait until all weights of the last step have arrived."""

    def release(self) -> None:
        """Return memory to the operating system; the next step allocates it again."""

    def state_parts(self, *, writable: bool = False) -> list[StatePart]:
        """Return the whole state of a checkpoint; weights have names without a slash.

        writable: to load a checkpoint.
        """

    def lend_state(self, reader: _core.LiveBytes) -> None:
        """Let `reader` read the live parts of state_parts from now until the next change, which releases it first."""

    def metrics(self) -> Mapping[str, Json]:
        """Return metrics of the last step besides its loss, for the log; expert_alarms is shown in the progress
        line.
        """

    def sample_sums(self) -> tuple[list[int], Array]:
        """Return the places in the batch of this rank's samples of the last step, and their nats and counted targets,
        float32 [n, 2]; only for a mixture.
        """

    def last_batch(self, step: int) -> Mapping[str, Array]:
        """Return all arrays of the batch of this step, which must be the last step."""

    def load_state(self, parts: Sequence[StatePart]) -> None:
        """Load the result of state_parts after a checkpoint was read into it."""

    def first_nonfinite(self, step: int) -> str:
        """Return the first node with a non-finite value on the batch of this step."""
