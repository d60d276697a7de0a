"""The style of a log: its lines and tags. The base class is our own, without further tags.

log.style names the original program in whose way a run logs; the program gives the style of that way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from mudd_core.base.types import Array
from mudd_core.config import Config
from mudd_core.config.programs import Programs
from mudd_core.run.records.events import BatchSums, SavedStep, StepRecord, Summary, Validation, numbers_of
from mudd_core.run.records.machine import Peak
from mudd_core.run.store.run_folder import RunFolder

if TYPE_CHECKING:
    from mudd_core.engine.model import Model


ForwardSums = dict[str, dict[str, float]]
"""Sums of the forward pass of one rank by place and name, as JSON has them."""


@dataclass(frozen=True)
class RunFacts:
    """The facts of a run that a style reads. counted: the number of all weights. folder: None in a notebook.

    documents: of training and validation, zeros if unknown. fields: of the original program, by name,
    as the command of this run decides them; empty without such a command.
    """

    config: Config
    folder: RunFolder | None
    flops_per_token: float
    peak: Peak
    counted: Callable[[], int]
    documents: tuple[int, int] = (0, 0)
    ranks: int = 1
    fields: Mapping[str, object] = field(default_factory=dict)

    @property
    def n_parameters(self) -> int:
        """The number of all weights."""
        return self.counted()


class Style:
    """Lines and tags of one program, each method replaced by a subclass. ours: our own lines are printed too."""

    ours = True
    weights_every = 0  # updates from one look at the weights to the next; 0: never
    statistics_every = 0  # updates from one reading of forward statistics to the next; 0: never

    @staticmethod
    def has_forward_statistics(config: Config) -> bool:
        """Return whether the log of a model of this config has statistics of the forward pass."""
        return False

    @staticmethod
    def read_forward(model: Model, length: int, rows: Mapping[str, Array]) -> ForwardSums:
        """Return sums of the forward pass of [B, T] arrays. length: T."""
        return {}

    @staticmethod
    def forward_tags(parts: Sequence[ForwardSums]) -> dict[str, float]:
        """Return the statistics by tag. parts: the sums of every rank, in order."""
        return {}

    def __init__(self, facts: RunFacts) -> None:
        self.facts = facts

    def started(self) -> list[str]:
        """Return the lines at the start of a run, and of each resume."""
        return []

    def step(self, record: StepRecord) -> list[str]:
        """Return the lines after an update; called after every one."""
        return []

    def validating(self) -> list[str]:
        """Return the lines before a validation."""
        return []

    def batch_validated(self, sums: BatchSums) -> list[str]:
        """Return the lines after one batch of a validation."""
        return []

    def validated(self, result: Validation) -> list[str]:
        """Return the lines after a validation."""
        return []

    def saved(self, step: int) -> list[str]:
        """Return the lines after the commit of a checkpoint."""
        return []

    def restored(self, found: SavedStep) -> list[str]:
        """Return the lines at a resume from a checkpoint."""
        return []

    def scalars(self, record: StepRecord) -> dict[str, float]:
        """Return further TensorBoard tags of an update; called after every one, mostly empty."""
        return {}

    def eval_scalars(self, result: Validation) -> dict[str, float]:
        """Return further TensorBoard tags of a validation."""
        return {}

    def object(self, record: StepRecord) -> dict[str, float | str]:
        """Return the object of an update for log.metrics_file if that file has the program's objects; else empty."""
        return {}

    def result(self, result: Validation) -> str:
        """Return the line of a validation for results.txt; empty for programs without that file."""
        return ""

    def texts(self) -> dict[str, str]:
        """Return the TensorBoard text summaries of a new run."""
        return {}

    def tracked(self, record: StepRecord) -> dict[str, float]:
        """Return the keys of the tracker at a logged update."""
        return self.scalars(record) or dict(numbers_of("train", record.row()))

    def eval_tracked(self, result: Validation) -> dict[str, float]:
        """Return the keys of the tracker at a validation."""
        return self.eval_scalars(result) or dict(numbers_of("valid", result.row()))


class ComplianceLog(Protocol):
    """The log of log.mllog. The constructor takes the config, the folder of the run and what prints a line."""

    def started(self, documents: tuple[int, int], step: int = 0, ranks: int = 1) -> None:
        """The first update comes next. documents: of training and validation. step: that a run resumes from."""

    def took_step(self, record: StepRecord) -> None:
        """An update was made."""

    def evaluating(self, step: int) -> None:
        """A validation comes next."""

    def validated(self, result: Validation) -> None:
        """A validation that was due has ended."""

    def ended(self, summary: Summary) -> None:
        """The run is done or stopped."""

    def close(self) -> None:
        """End a run that broke off, and write the rest; SaveError if that fails."""


class LoggedProgram(Protocol):
    """An original program, as the logs of a run see it."""

    def style(self, config: Config) -> type[Style]:
        """Return the class of its log lines and tags."""

    def compliance_log(self) -> Callable[[Config, RunFolder, Callable[[str], None]], ComplianceLog] | None:
        """Return the constructor of the log of log.mllog, if the program has that log."""


def _class_of(config: Config) -> type[Style]:
    program = Programs[LoggedProgram]().named(config.log.style)
    return Style if program is None else program.style(config)


def style_of(facts: RunFacts) -> Style:
    """Return the style of a run; ours if log.style is auto or ours."""
    return _class_of(facts.config)(facts)


def compliance_log(config: Config, folder: RunFolder, say: Callable[[str], None]) -> ComplianceLog | None:
    """Return the log of log.mllog, which one of the programs writes; None if the config has it off."""
    if not config.log.mllog:
        return None
    logs = [program.compliance_log() for program in Programs[LoggedProgram]()]
    return next(log(config, folder, say) for log in logs if log is not None)


def has_own_start(config: Config) -> bool:
    """Return whether a start prints our lines; a style prints the lines of its program."""
    return _class_of(config) is Style


def logs_step(config: Config, step: int) -> bool:
    """Return whether update `step` gets a row in metrics.jsonl."""
    return step % config.train.log_every == 0 or step == config.train.steps


def reads_norms(config: Config, step: int) -> bool:
    """Return whether the log of update `step` has norms of weights. All ranks ask: each sums its own."""
    every = _class_of(config).weights_every
    return every > 0 and step % every == 0


def measures_weights(config: Config) -> bool:
    """Return whether the log measures weights as a whole, at any update."""
    return config.log.weights or config.log.activations


def forward_style(config: Config, step: int) -> type[Style] | None:
    """Return the style whose log of update `step` has statistics of the forward pass. All ranks ask."""
    style = _class_of(config)
    every = style.statistics_every
    due = config.log.weights and every > 0 and step % every == 0
    return style if due and style.has_forward_statistics(config) else None
