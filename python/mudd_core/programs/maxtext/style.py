"""log.style=maxtext: the lines and tags that both MaxText programs share, and the style of TokenFormer's program."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping

from mudd_core.config.fields import walk
from mudd_core.run.records.events import BatchSums, StepRecord, Validation
from mudd_core.run.report.style import RunFacts, Style

_FIRST_NORM = 1000.0  # the gradient norm in TokenFormer's program before its first update


class MaxTextStyle(Style):
    """One line for each update, and tags for every update that `every` divides."""

    ours = False
    every = 1  # updates between two writes of the tags

    def __init__(self, facts: RunFacts) -> None:
        super().__init__(facts)
        self._written: tuple[int, dict[str, float]] = (0, {})  # (step, tags) of the newest entry

    @abstractmethod
    def line(self, record: StepRecord) -> str:
        """The line of an update."""

    @abstractmethod
    def tags(self, record: StepRecord) -> dict[str, float]:
        """The tags of an update."""

    def step(self, record: StepRecord) -> list[str]:
        """Return the line of an update, and a hint when the program flushes its event file."""
        lines, period = [self.line(record)], math.lcm(self.every, self.facts.config.log.flush_every)
        if self.facts.folder is not None and record.step % period == 0:
            lines.append(f"To see full metrics 'tensorboard --logdir={self.facts.folder.board_folder}'")
        return lines

    def saved(self, step: int) -> list[str]:
        """Return the line of a save."""
        return [f"saved a checkpoint at step {step}"]

    def scalars(self, record: StepRecord) -> dict[str, float]:
        """Return the tags of an update if they are due; they are computed once."""
        if record.step % self.every:
            return {}
        if self._written[0] != record.step:
            self._written = (record.step, self.tags(record))
        return self._written[1]

    def object(self, record: StepRecord) -> dict[str, float | str]:
        """Return the record of metrics_file: the tags, the step and the name of the run."""
        tags = self.scalars(record)
        return {**tags, "step": float(record.step), "run_name": self.facts.config.name} if tags else {}

    def texts(self) -> dict[str, str]:
        """Return the number of parameters and every field of the config."""
        fields = {info.path: str(info.value) for info in walk(self.facts.config)}
        return {"num_model_parameters": str(self.facts.n_parameters), "libtpu_init_args": "", **fields}

    def seconds(self, record: StepRecord) -> float:
        """Return the wall time of an update."""
        train = self.facts.config.train
        return train.batch_size * train.seq_len / max(record.tokens_per_second, 1e-9)

    def tflops(self) -> float:
        """Return the TFLOPs of an update per rank; a rank is a device here."""
        train = self.facts.config.train
        return self.facts.flops_per_token * train.batch_size * train.seq_len / 1e12 / self.facts.ranks

    def clipped(self, record: StepRecord) -> float:
        """Return the norm of the gradient after clipping."""
        clip = self.facts.config.optim.clip
        return min(record.grad_norm, clip) if clip > 0 else record.grad_norm


def joined(norms: Mapping[str, float]) -> float:
    """Return the norm of all parameters together."""
    return math.sqrt(math.fsum(norm * norm for norm in norms.values()))


class TokenFormerStyle(MaxTextStyle):
    """TokenFormer's style: tags every update. Validations have lines and results.txt, but no tags."""

    every = weights_every = 1

    def __init__(self, facts: RunFacts) -> None:
        super().__init__(facts)
        self._norm = _FIRST_NORM  # the newest finite gradient norm
        self._batches = 0  # batches of the current validation so far

    def line(self, record: StepRecord) -> str:
        """The line of an update."""
        seconds = self.seconds(record)
        return (
            f"completed step: {record.step}, seconds: {seconds:.3f}, "
            f"TFLOP/s/device: {self.tflops() / seconds:.3f}, loss: {record.loss:.3f}"
        )

    def validating(self) -> list[str]:
        """Return the line before a validation."""
        self._batches = 0
        return [">>> evaluation starts: "]

    def batch_validated(self, sums: BatchSums) -> list[str]:
        """Return the line of one batch of a validation, numbered from 0."""
        self._batches = sums.number
        return [f">>> eval step:  {sums.number - 1}"]

    def validated(self, result: Validation) -> list[str]:
        """Return the lines of a validation."""
        return [
            f"average loss after step={result.step}: eval_loss={result.val_loss}, "
            f"total_weights={float(result.targets)}",
            f">>> evaluation ends with {self._batches} steps!!!",
        ]

    def result(self, result: Validation) -> str:
        """Return the line of results.txt."""
        return f"Step: {result.step}; eval_loss: {result.val_loss}"

    def tags(self, record: StepRecord) -> dict[str, float]:
        """Return the metrics of an update; skip_step is 1 for a skipped update."""
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
            "learning/upated_pre_grad_norm": self._norm,  # the program spells it so
            "perf/step_time_seconds": seconds,
            "perf/per_device_tflops": self.tflops(),
            "perf/per_device_tflops_per_sec": self.tflops() / seconds,
            "learning/current_learning_rate": record.lr,
        }
