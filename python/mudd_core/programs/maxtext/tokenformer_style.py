"""log.style=maxtext of a TokenFormer and its baseline: what TokenFormer's MaxText program prints and writes."""

from __future__ import annotations

import math

from mudd_core.programs.maxtext.style import MaxTextStyle, joined
from mudd_core.run.records.events import BatchSums, StepRecord, Validation
from mudd_core.run.report.style import RunFacts

_FIRST_NORM = 1000.0  # what the program has for the gradient norm before its first update


class TokenFormerStyle(MaxTextStyle):
    """Tags every update. Validations have lines and results.txt, but no tags."""

    every = weights_every = 1

    def __init__(self, facts: RunFacts) -> None:
        super().__init__(facts)
        self._norm = _FIRST_NORM  # of the newest gradient that is a number
        self._batches = 0  # of the validation that is going on

    def line(self, record: StepRecord) -> str:
        """The line of an update."""
        seconds = self.seconds(record)
        return (
            f"completed step: {record.step}, seconds: {seconds:.3f}, "
            f"TFLOP/s/device: {self.tflops() / seconds:.3f}, loss: {record.loss:.3f}"
        )

    def validating(self) -> list[str]:
        """The line before a validation."""
        self._batches = 0
        return [">>> evaluation starts: "]

    def batch_validated(self, sums: BatchSums) -> list[str]:
        """The line of one batch of a validation, numbered from 0."""
        self._batches = sums.number
        return [f">>> eval step:  {sums.number - 1}"]

    def validated(self, result: Validation) -> list[str]:
        """The lines of a validation."""
        return [
            f"average loss after step={result.step}: eval_loss={result.val_loss}, "
            f"total_weights={float(result.targets)}",
            f">>> evaluation ends with {self._batches} steps!!!",
        ]

    def result(self, result: Validation) -> str:
        """The line of results.txt."""
        return f"Step: {result.step}; eval_loss: {result.val_loss}"

    def tags(self, record: StepRecord) -> dict[str, float]:
        """The metrics of an update; skip_step is 1 for an update that is left out."""
        before, seconds = self._norm, self.seconds(record)
        if not math.isnan(record.grad_norm + record.loss):
            self._norm = record.grad_norm
        return {
            "learning/loss": record.loss,
            "learning/grad_norm": self.clipped(record),
            "learning/raw_grad_norm": record.grad_norm,
            "learning/param_norm": joined(record.norms),
            "learning/skip_step": float(record.skipped),
            "learning/pre_grad_norm": before,
            "learning/upated_pre_grad_norm": self._norm,  # the program's spelling
            "perf/step_time_seconds": seconds,
            "perf/per_device_tflops": self.tflops(),
            "perf/per_device_tflops_per_sec": self.tflops() / seconds,
            "learning/current_learning_rate": record.lr,
        }
