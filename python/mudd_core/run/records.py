"""What the training loop reports: a step, a validation, the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from mudd_core.checkpoint import StatePart
from mudd_core.engine.accuracy import SAMPLE_ACCURACY

DATA_FACT = "data"  # name of the token cache's fingerprint among the facts of a run
SEAL_FACT = "data_seal"  # and of its seal


def perplexity(loss: float) -> float:
    """Return e to the loss: inf where a float cannot hold it, NaN for NaN."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


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

    def evaluate(self, batch: Any) -> tuple[float, int, int]:
        """Summed nats, counted and guessed targets of a batch."""


class LoopEngine(Evaluator, Protocol):
    """The part of the engine that the loop uses; tests put a small one in its place."""

    batcher: Any

    def train_step(
        self,
        step: int,
        lr: float,
        batch: Any = None,
        limits: tuple[float, float] | None = None,
        flags: int = 0,
        settle: bool = True,
    ) -> StepReport:
        """An update on the batch, or else on the batcher's batch number `step`, from 0.

        limits: the largest loss and gradient norm that an update is made for. flags: bits, sent to all ranks.
        settle: False where another step follows.
        """

    def settle(self) -> None:
        """Return when all weights of the last step are here."""

    def state_parts(self, *, writable: bool = False) -> list[StatePart]:
        """All that a checkpoint holds; weights have names without a slash. writable: to read one into them."""

    def metrics(self) -> Mapping[str, Any]:
        """Metrics of the last step beside its loss, for the metrics row; expert_alarms goes on the progress line."""

    def last_batch(self, step: int) -> Mapping[str, Any]:
        """All arrays of the batch of this step, the last one taken."""

    def load_state(self, parts: Sequence[StatePart]) -> None:
        """Take over what state_parts gave, once a checkpoint was read into it."""

    def first_nonfinite(self, step: int) -> str:
        """The first node with a number that is not finite on the batch of this step."""


@dataclass(frozen=True)
class StepRecord:
    """One update. loss: mean nats per target; seconds: of this run so far, earlier parts included.

    metrics: of the model, beside its loss; entries of the row like the other fields, SAMPLE_ACCURACY excepted. targets:
    that counted; no part of the row. statistics: of activations and updates, by the names of an original program.
    """

    step: int
    tokens: int
    loss: float
    lr: float
    grad_norm: float
    tokens_per_second: float
    peak_share: float
    seconds: float
    skipped: bool = False
    rewinds: int = 0
    targets: int = 0
    metrics: Mapping[str, Any] = field(default_factory=dict)
    statistics: Mapping[str, float] = field(default_factory=dict)

    @property
    def perplexity(self) -> float:
        """e to the loss."""
        return perplexity(self.loss)

    def row(self) -> dict[str, Any]:
        """The row of metrics.jsonl without statistics; `skipped` only where true, `rewinds` only behind one."""
        row = asdict(self)
        row |= row.pop("metrics")
        for name in ("targets", "statistics", SAMPLE_ACCURACY):
            row.pop(name, None)
        rare = {name: row.pop(name) for name in ("skipped", "rewinds")}
        return row | {name: value for name, value in rare.items() if value}


@dataclass(frozen=True)
class BatchSums:
    """One batch of a validation, numbered from 1. seconds: since the validation began."""

    number: int
    nats: float
    targets: int
    guessed: int
    seconds: float


@dataclass(frozen=True)
class Validation:
    """Loss on the held-out rows: mean nats per target, and bits per byte of text; None for data without text.

    val_accuracy: guessed over counted targets. batch_loss, batch_accuracy: means over batches of their own means; no
    part of the row.
    """

    step: int
    val_loss: float
    val_bits_per_byte: float | None
    targets: int
    seconds: float
    val_accuracy: float | None = None
    batch_loss: float = math.nan
    batch_accuracy: float = math.nan

    @property
    def val_ppl(self) -> float:
        """e to the loss."""
        return perplexity(self.val_loss)

    @property
    def text(self) -> str:
        """The metric beside the loss: bits per byte, perplexity where there is no text."""
        bits = self.val_bits_per_byte
        return f"ppl {self.val_ppl:.4g}" if bits is None else f"{bits:.4f} bits per byte"

    def row(self) -> dict[str, Any]:
        """The row of metrics.jsonl."""
        names = ("step", "val_loss", "val_bits_per_byte", "val_ppl", "val_accuracy", "targets", "seconds")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Summary:
    """How a call of fit() ended. stopped: who asked for it, or None when all steps are done.

    skipped_steps: of the path to this step. rewinds: how often the run went back to a checkpoint. reached: the run
    ended early because a validation loss was at or below eval.target_loss. data_end: it ended early with its data.
    validates: whether it has rows for validation.
    """

    name: str
    step: int
    steps: int
    tokens: int
    loss: float | None
    val_loss: float | None
    val_bits_per_byte: float | None
    skipped_steps: int
    seconds: float
    final_hash: str
    stopped: str | None = None
    rewinds: int = 0
    reached: bool = False
    data_end: bool = False
    validates: bool = True
