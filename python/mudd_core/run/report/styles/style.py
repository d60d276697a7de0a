"""What a style may say; this one is ours: our own lines, and no tags beside those of the metrics rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mudd_core.config import Config
from mudd_core.run.records.events import BatchSums, SavedStep, StepRecord, Validation
from mudd_core.run.records.peak import Peak
from mudd_core.run.store.metrics import numbers_of
from mudd_core.run.store.run_folder import RunFolder


@dataclass(frozen=True)
class RunFacts:
    """What a style knows of a run. counted: the number of all weights. folder: None in a notebook.

    documents: of training and validation, zeros where they are not known. forward_statistics: of an update,
    by tag; none for families without. norms: of the weights after an update, by name. fields: of the original
    program, by name, as the command of this run decides them; empty without such a command.
    """

    config: Config
    folder: RunFolder | None
    flops_per_token: float
    peak: Peak
    counted: Callable[[], int]
    documents: tuple[int, int] = (0, 0)
    forward_statistics: Callable[[int], dict[str, float]] = lambda step: {}
    ranks: int = 1
    fields: Mapping[str, object] = field(default_factory=dict)
    norms: Callable[[int], dict[str, float]] = lambda step: {}

    @property
    def n_parameters(self) -> int:
        """The number of all weights."""
        return self.counted()


class Style:
    """Lines and tags of one program; a subclass replaces what its program says. ours: our lines are printed too."""

    ours = True
    weights_every = 0  # updates from one look at the weights to the next; 0: never

    def __init__(self, facts: RunFacts) -> None:
        self.facts = facts

    def started(self) -> list[str]:
        """Lines at the start of a run, and of each resume."""
        return []

    def step(self, record: StepRecord) -> list[str]:
        """Lines behind an update; every one is asked."""
        return []

    def validating(self) -> list[str]:
        """Lines before a validation."""
        return []

    def batch_validated(self, sums: BatchSums) -> list[str]:
        """Lines behind one batch of a validation."""
        return []

    def validated(self, result: Validation) -> list[str]:
        """Lines behind a validation."""
        return []

    def saved(self, step: int) -> list[str]:
        """Lines behind a commit of a checkpoint."""
        return []

    def restored(self, found: SavedStep) -> list[str]:
        """Lines where a run continues from a checkpoint."""
        return []

    def scalars(self, record: StepRecord) -> dict[str, float]:
        """Further TensorBoard tags of an update; every one is asked, few have some."""
        return {}

    def eval_scalars(self, result: Validation) -> dict[str, float]:
        """Further TensorBoard tags of a validation."""
        return {}

    def object(self, record: StepRecord) -> dict[str, float | str]:
        """The object of an update for log.metrics_file, where that has the program's own; else empty."""
        return {}

    def result(self, result: Validation) -> str:
        """The line of a validation for results.txt beside the objects; empty for programs without that file."""
        return ""

    def texts(self) -> dict[str, str]:
        """TensorBoard text summaries of a new run."""
        return {}

    def tracked(self, record: StepRecord) -> dict[str, float]:
        """Keys of the tracker at a logged update."""
        return self.scalars(record) or dict(numbers_of("train", record.row()))

    def eval_tracked(self, result: Validation) -> dict[str, float]:
        """Keys of the tracker at a validation."""
        return self.eval_scalars(result) or dict(numbers_of("valid", result.row()))
