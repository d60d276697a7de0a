"""The events of a run: their names in events.jsonl, and the records of a step, a validation, a rewind and the end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from mudd_core.base.show.tables import html_table
from mudd_core.base.types import Json
from mudd_core.base.units import duration
from mudd_core.engine.accuracy import SAMPLE_ACCURACY
from mudd_core.run.records.by_source import LossBySource, loss_columns, shown


class EventName(StrEnum):
    """The names of events. Runs of earlier versions have neither `saved` nor `skipped`."""

    IMPORTED = "imported"
    STARTED = "started"
    RESUMED = "resumed"
    STOPPED = "stopped"
    FINISHED = "finished"
    SAVED = "saved"
    SAVE_FAILED = "save failed"
    SKIPPED = "skipped"
    REWOUND = "rewound"
    SOURCE_LOST = "source lost"
    NO_SAMPLE = "no sample"
    WARNING = "warning"


def perplexity(loss: float) -> float:
    """Return exp(loss): inf on overflow, NaN for NaN."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class StepRecord:
    """One update. loss: mean nats per target; seconds: of this run so far, including earlier sessions.

    metrics: further metrics of the model, logged like the other fields, except SAMPLE_ACCURACY. targets: the number of
    counted targets; not logged. statistics: statistics of activations and updates, under the names of an original
    program.
    forward, norms: statistics of the forward pass, and norms of the weights after the update. Both are for the log
    lines of an original program, and empty at other updates.
    phases: at a logged update, the seconds by phase since the previous entry (records/phases.py). hidden: the seconds
    in which messages were in transit while this rank computed. load: the use of the machine (ranks/load.py), and
    of several ranks least_wait: the smallest fraction of the time that a rank spends in messages.
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
    metrics: Mapping[str, Json] = field(default_factory=dict)
    statistics: Mapping[str, float] = field(default_factory=dict)
    forward: Mapping[str, float] = field(default_factory=dict)
    norms: Mapping[str, float] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    hidden: float = 0.0
    load: Mapping[str, float] = field(default_factory=dict)

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return perplexity(self.loss)

    def metric(self, name: str, missing: float) -> float:
        """Return a value of `metrics`, or `missing` if the name does not exist."""
        found = self.metrics.get(name)
        return float(found) if isinstance(found, int | float) else missing

    def row(self) -> dict[str, Any]:
        """Return the entry of metrics.jsonl without statistics.

        `skipped` is included only if true, `rewinds` only after one, `hidden` only with messages.
        """
        row = asdict(self)
        row |= row.pop("metrics")
        for name in ("targets", "statistics", "forward", "norms", SAMPLE_ACCURACY):
            row.pop(name, None)
        rare = {name: row.pop(name) for name in ("skipped", "rewinds", "phases", "hidden", "load")}
        return row | {name: value for name, value in rare.items() if value}


class SavedStep(Protocol):
    """A checkpoint on disk from which a run continues."""

    @property
    def step(self) -> int:
        """The number of updates before the checkpoint was saved."""

    @property
    def path(self) -> Path:
        """The folder of the checkpoint."""


@dataclass(frozen=True)
class BatchSums:
    """One batch of a validation, numbered from 1. seconds: the time since the validation started."""

    number: int
    nats: float
    targets: int
    guessed: int
    seconds: float


@dataclass(frozen=True)
class Validation:
    """Loss on held-out sequences: mean nats per target, and bits per byte of text (None for data without text).

    val_accuracy: guessed targets divided by counted targets. val_margin: for pairs of answers, the mean margin in
    nats; val_accuracy is then the fraction of pairs with a positive margin, and val_loss the mean over pairs.
    batch_loss, batch_accuracy: means over batches of the batch means; these are not logged. val_teacher_kl: mean
    divergence from the teacher of loss.teacher, in nats. val_teacher_agreement: fraction of targets at which both have
    the same likeliest token. val_loss_average: val_loss with the averaged weights of train.average. by_source: the
    loss of each source of a mixture. val_loss and val_accuracy are their means with the weights of data.mix;
    val_bits_per_byte is the weighted bits divided by the weighted bytes.
    """

    step: int
    val_loss: float
    val_bits_per_byte: float | None
    targets: int
    seconds: float
    val_accuracy: float | None = None
    batch_loss: float = math.nan
    batch_accuracy: float = math.nan
    val_teacher_kl: float | None = None
    val_teacher_agreement: float | None = None
    val_margin: float | None = None
    val_loss_average: float | None = None
    by_source: LossBySource = field(default_factory=dict)

    @property
    def val_ppl(self) -> float:
        """exp(loss)."""
        return perplexity(self.val_loss)

    @property
    def text(self) -> str:
        """The metric that is shown with the loss: bits per byte, or perplexity for data without text."""
        bits = self.val_bits_per_byte
        if self.val_margin is not None:
            text = self._pairs_text(4)
        else:
            text = f"ppl {self.val_ppl:.4g}" if bits is None else f"{bits:.4f} bits per byte"
        if self.val_teacher_kl is not None and self.val_teacher_agreement is not None:
            text += (
                f", KL {self.val_teacher_kl:.4f} from the teacher, {self.val_teacher_agreement:.1%} agreement"
            )
        if self.val_loss_average is not None:
            text += f", loss {self.val_loss_average:.4f} with the averaged weights"
        return f"{text}; {shown(self.by_source)}" if self.by_source else text

    @property
    def precise_text(self) -> str:
        """The same metric with six decimals, for a command that reports only this metric."""
        bits = self.val_bits_per_byte
        if self.val_margin is not None:
            return self._pairs_text(6)
        return f"ppl {self.val_ppl:.6f}" if bits is None else f"{bits:.6f} bits per byte"

    def source_lines(self) -> list[str]:
        """Return a line for each source of a mixture."""
        return [one.line(name) for name, one in self.by_source.items()]

    def _pairs_text(self, digits: int) -> str:
        return f"accuracy {self.val_accuracy or 0.0:.1%}, margin {self.val_margin:.{digits}f}"

    def row(self) -> dict[str, Any]:
        """Return the entry of metrics.jsonl; a loss of pairs of answers has no perplexity."""
        perplexity = ("val_ppl",) if self.val_margin is None else ()
        names = ("step", "val_loss", "val_bits_per_byte", *perplexity, "val_accuracy", "targets", "seconds")
        of_teacher = () if self.val_teacher_kl is None else ("val_teacher_kl", "val_teacher_agreement")
        rare = [name for name in ("val_margin", "val_loss_average") if getattr(self, name) is not None]
        row = {name: getattr(self, name) for name in (*names, *of_teacher, *rare)}
        return row | loss_columns(self.by_source, "val_")


@dataclass(frozen=True)
class Sample:
    """A sample that the model generated after a prompt, with the weights of this step."""

    step: int
    prompt: str
    text: str


# The values of a Summary that matter first.
_FIRST = ("loss", "val_loss", "val_bits_per_byte", "seconds")


@dataclass(frozen=True, repr=False)
class Summary:
    """The result of a call of fit(). stopped: the origin of a stop request, or None if all steps are done.

    skipped_steps: the number of skipped updates up to this step. rewinds: the number of returns to a checkpoint.
    reached: the run ended early because a validation loss was at or below eval.target_loss. data_end: the run ended
    early, with its data. data_epochs: the value of data.epochs. validates: the run has sequences for validation.
    best_val_loss, best_step: loss and step of the best validation. since_best: the number of validations after it.
    out_of_patience: the run ended early because since_best reached train.patience. warnings: messages about a run that
    diverged or had nothing to learn (run/loop/learning_watch.py).
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
    data_epochs: int = 0
    validates: bool = True
    best_val_loss: float | None = None
    best_step: int | None = None
    since_best: int = 0
    out_of_patience: bool = False
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        first = {
            "loss": None if self.loss is None else f"{self.loss:.4f} nats",
            "validation loss": None if self.val_loss is None else f"{self.val_loss:.4f} nats",
            "bits per byte": None if self.val_bits_per_byte is None else f"{self.val_bits_per_byte:.4f}",
            "time": duration(self.seconds),
            "stopped by": self.stopped,
        }
        parts = [f"{label} {text}" for label, text in first.items() if text is not None]
        return f"Summary('{self.name}': {'; '.join([f'step {self.step:,} of {self.steps:,}', *parts])})"

    def _repr_html_(self) -> str:
        def text(value: float | str | tuple[str, ...]) -> str:
            if isinstance(value, str):
                return value
            if isinstance(value, tuple):
                return "; ".join(value)
            if isinstance(value, bool):
                return "yes"  # false is left out
            return f"{value:,}" if isinstance(value, int) else f"{value:.5g}"

        names = dict.fromkeys([*_FIRST, *(label.name for label in fields(self))])
        known = {name: getattr(self, name) for name in names}
        rows = [(name, text(value)) for name, value in known.items() if value not in (None, False, ())]
        return html_table(rows, title=f"Run '{self.name}': step {self.step:,} of {self.steps:,}")


@dataclass(frozen=True)
class Rewind:
    """A return from update from_step to update to_step. Batches first_batch to last_batch are then skipped."""

    from_step: int
    to_step: int
    first_batch: int
    last_batch: int

    @property
    def batches(self) -> int:
        """The number of skipped batches."""
        return self.last_batch - self.first_batch + 1


class Validations:
    """The steps and losses (nats) of a run's validations, in order.

    The best validation has the lowest finite loss; among equal losses, the first one is the best. best: (loss, step),
    None before the first finite loss.
    since_best: number of validations after it.
    """

    def __init__(self, losses: Iterable[tuple[int, float]] = ()) -> None:
        self._losses: list[tuple[int, float]] = []
        self.best: tuple[float, int] | None = None
        self.since_best = 0
        for step, loss in losses:
            self.add(step, loss)

    def add(self, step: int, loss: float) -> None:
        """Add a validation."""
        self._losses.append((step, loss))
        if math.isfinite(loss) and (self.best is None or loss < self.best[0]):
            self.best, self.since_best = (loss, step), 0
        else:
            self.since_best += 1

    def best_first(self) -> list[int]:
        """Return the steps with a finite loss, from the lowest loss to the highest."""
        return [
            step for _, step in sorted((loss, step) for step, loss in self._losses if math.isfinite(loss))
        ]


def numbers_of(name: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield the numbers in a value of a log entry. Elements of lists are named name/0, name/1 and so on."""
    if isinstance(value, int | float):
        yield name, float(value)
    elif isinstance(value, Mapping):
        for member, entry in value.items():
            if member != "step":
                yield from numbers_of(f"{name}/{member}", entry)
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from numbers_of(f"{name}/{index}", entry)
