"""The engine as the training loop sees it: what it is asked for, and what it reports of one update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from mudd_core.base.types import Array, Json
from mudd_core.checkpoint import StatePart
from mudd_core.engine.weight_norms import Squares


class StepReport(Protocol):
    """What the engine returns for one update."""

    @property
    def loss(self) -> float:
        """Nats over the denominator of loss.normalize."""

    @property
    def grad_norm(self) -> float:
        """Norm of the mean gradient before clipping."""

    @property
    def finite(self) -> bool:
        """Loss and gradient norm; False: no update was made."""

    @property
    def spike(self) -> bool:
        """Finite, but the loss or the gradient norm was above its limit: no update was made."""

    @property
    def spoilt(self) -> bool:
        """The update was made and wrote a weight or a moment that is not finite."""

    @property
    def stopped(self) -> bool:
        """True: a stop was asked for and nothing has changed."""

    @property
    def weight_sum(self) -> float:
        """Targets that count in the batch."""

    @property
    def flags(self) -> int:
        """Those that any rank gave to the step."""


def kept(report: StepReport) -> bool:
    """Whether the update was made and holds."""
    return report.finite and not report.spike and not report.spoilt


class Evaluator(Protocol):
    """A model or an engine, as far as validation goes."""

    def evaluate(self, batch: Mapping[str, Array]) -> tuple[float, int, int]:
        """Summed nats, counted and guessed targets of a batch."""


class LoopEngine(Evaluator, Protocol):
    """The part of the engine that the loop uses; tests put a small one in its place."""

    batcher: Any

    def train_step(
        self,
        step: int,
        lr: float,
        batch: Mapping[str, Array] | None = None,
        limits: tuple[float, float] | None = None,
        flags: int = 0,
        settle: bool = True,
    ) -> StepReport:
        """An update on the batch, or else on the batcher's batch number `step`, from 0.

        limits: the largest loss and gradient norm that an update is made for. flags: bits, sent to all ranks.
        settle: False where another step follows.
        """

    def weight_squares(self) -> Squares:
        """Squares of the weights that this rank holds, summed by blocks."""

    def settle(self) -> None:
        """Return when all weights of the last step are here."""

    def release(self) -> None:
        """Return memory to the system that the next step takes again."""

    def state_parts(self, *, writable: bool = False) -> list[StatePart]:
        """All that a checkpoint holds; weights have names without a slash. writable: to read one into them."""

    def metrics(self) -> Mapping[str, Json]:
        """Metrics of the last step beside its loss, for the metrics row; expert_alarms goes on the progress line."""

    def last_batch(self, step: int) -> Mapping[str, Array]:
        """All arrays of the batch of this step, the last one taken."""

    def load_state(self, parts: Sequence[StatePart]) -> None:
        """Take over what state_parts gave, once a checkpoint was read into it."""

    def first_nonfinite(self, step: int) -> str:
        """The first node with a number that is not finite on the batch of this step."""
