"""The metrics of the last training step besides its loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mudd_core import _core
from mudd_core.base.types import Array, JsonObject
from mudd_core.engine.accuracy import step_accuracy, teacher_metrics
from mudd_core.engine.expert_load import ExpertLoad
from mudd_core.engine.pairs import pair_metrics
from mudd_core.engine.teaching import has_teacher

if TYPE_CHECKING:
    from mudd_core.engine.model import Model


class LastMetrics:
    """The accuracy, the objective, and the loads of experts. by_sample: the steps also sum the loss of each sample.

    load: of the model's experts; None for a model without experts.
    """

    def __init__(self, model: Model, load: ExpertLoad | None, *, by_sample: bool) -> None:
        self._model, self._load, self._by_sample = model, load, by_sample
        self._aux_loss = self._objective = 0.0
        self._accuracy: dict[str, float] = {}

    def add(
        self,
        step: int,
        report: _core.StepReport,
        sums: Array,
        sequences: int,
        given: Sequence[str] | Mapping[str, Array],
    ) -> None:
        """Compute the metrics of a step. sums: TrainStep.metrics. given: the arrays of the batch, or their names."""
        self._objective = report.objective
        of_teacher: dict[str, float] = {}
        if has_teacher(given):
            of_teacher = teacher_metrics(sums[-2:], report.weight_sum)
            sums = sums[:-2]
        if self._by_sample:
            sums = sums[:-2]  # the loss and the targets of all samples, which the report has
        if self._model.pairs is not None:
            self._accuracy = pair_metrics(sums[-2:], report.weight_sum)
        else:
            self._accuracy = {**step_accuracy(sums[-2:], report.weight_sum, sequences), **of_teacher}
        if self._load is not None:
            self._load.add_step(step, sums[:-2])
            self._aux_loss = report.aux_loss

    def row(self) -> JsonObject:
        """Return the metrics by name; see Engine.metrics."""
        trained = {"objective": self._objective} if self._model.regularized is not None else {}
        if self._load is None:
            return {**self._accuracy, **trained}
        return {**self._accuracy, **trained, "aux_loss": self._aux_loss, **self._load.row()}
