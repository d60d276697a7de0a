"""Log styles: the lines and tags of a run's log. The base class is the default style, without further tags.

log.style selects a reference implementation, which provides a subclass that logs in its format.
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
"""Sums over the forward pass of one rank, by place in the model and name, in JSON types."""


@dataclass(frozen=True)
class RunFacts:
    """The facts of a run that a style reads. counted: returns the parameter count. folder: None in a notebook.

    documents: counts for training and validation, 0 if unknown. fields: the reference implementation's options by name,
    with the values from this run's command line; empty without such a command line.
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
        """The parameter count."""
        return self.counted()


class Style:
    """The lines and tags of one program; subclasses override methods. ours: whether the default lines are printed."""

    ours = True
    weights_every = 0  # interval in updates at which weights are read; 0: never
    statistics_every = 0  # interval in updates at which forward statistics are computed; 0: never

    @staticmethod
    def has_forward_statistics(config: Config) -> bool:
        """Return whether the log of a model of this config has statistics of the forward pass."""
        return False

    @staticmethod
    def read_forward(model: Model, length: int, rows: Mapping[str, Array]) -> ForwardSums:
        """Return sums over the forward pass of [B, T] arrays. length: T."""
        return {}

    @staticmethod
    def forward_tags(parts: Sequence[ForwardSums]) -> dict[str, float]:
        """Return the statistics by tag. parts: the sums of each rank, in rank order."""
        return {}

    def __init__(self, facts: RunFacts) -> None:
        self.facts = facts

    def started(self) -> list[str]:
        """Return the lines at the start of a run and at each resume."""
        return []

    def step(self, record: StepRecord) -> list[str]:
        """Return the lines after an update; called after each one."""
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
        """Return further TensorBoard tags of an update; called after each one, and usually empty."""
        return {}

    def eval_scalars(self, result: Validation) -> dict[str, float]:
        """Return further TensorBoard tags of a validation."""
        return {}

    def object(self, record: StepRecord) -> dict[str, float | str]:
        """Return the program's JSON object of an update for log.metrics_file; empty if that file has none."""
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
    """The log of log.mllog. Its constructor accepts the config, the folder of the run and a function to print lines."""

    def started(self, documents: tuple[int, int], step: int = 0, ranks: int = 1) -> None:
        """Log the start. documents: counts for training and validation. step: the step that a run resumes from."""

    def took_step(self, record: StepRecord) -> None:
        """Log an update."""

    def evaluating(self, step: int) -> None:
        """Log the start of a validation."""

    def validated(self, result: Validation) -> None:
        """Log the result of a scheduled validation."""

    def ended(self, summary: Summary) -> None:
        """Log the end of a run that is done or stopped."""

    def close(self) -> None:
        """Log the end of a run that failed, if it has not ended, and flush. Raise SaveError if writing fails."""


class LoggedProgram(Protocol):
    """The part of a reference implementation that the logs of a run use."""

    def style(self, config: Config) -> type[Style]:
        """Return the class of its log style."""

    def compliance_log(self) -> Callable[[Config, RunFolder, Callable[[str], None]], ComplianceLog] | None:
        """Return the constructor of its log for log.mllog; None if the program has no such log."""


def _class_of(config: Config) -> type[Style]:
    program = Programs[LoggedProgram]().named(config.log.style)
    return Style if program is None else program.style(config)


def style_of(facts: RunFacts) -> Style:
    """Return the log style of a run; the default style if log.style is `auto` or `ours`."""
    return _class_of(facts.config)(facts)


def compliance_log(config: Config, folder: RunFolder, say: Callable[[str], None]) -> ComplianceLog | None:
    """Return the log of log.mllog, which one of the programs provides; None if log.mllog is off."""
    if not config.log.mllog:
        return None
    logs = [program.compliance_log() for program in Programs[LoggedProgram]()]
    return next(log(config, folder, say) for log in logs if log is not None)


def has_own_start(config: Config) -> bool:
    """Return whether the run prints the default start lines, not the start lines of a program."""
    return _class_of(config) is Style


def logs_step(config: Config, step: int) -> bool:
    """Return whether update `step` gets an entry in metrics.jsonl."""
    return step % config.train.log_every == 0 or step == config.train.steps


def reads_norms(config: Config, step: int) -> bool:
    """Return whether the log of update `step` has weight norms. All ranks call this: each sums its own weights."""
    every = _class_of(config).weights_every
    return every > 0 and step % every == 0


def measures_weights(config: Config) -> bool:
    """Return whether the log needs whole weights at some update."""
    return config.log.weights or config.log.activations


def forward_style(config: Config, step: int) -> type[Style] | None:
    """Return the style if its log of update `step` has forward statistics, else None. All ranks call this."""
    style = _class_of(config)
    every = style.statistics_every
    due = config.log.weights and every > 0 and step % every == 0
    return style if due and style.has_forward_statistics(config) else None
