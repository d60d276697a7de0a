"""log.style=maxtext: what MUDDFormer's and TokenFormer's MaxText programs print and write alike."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping

from mudd_core.config.fields import walk
from mudd_core.run.records.events import StepRecord
from mudd_core.run.report.style import RunFacts, Style


class MaxTextStyle(Style):
    """One line an update, and the tags of every update that `every` divides."""

    ours = False
    every = 1  # updates from one write of the tags to the next

    def __init__(self, facts: RunFacts) -> None:
        super().__init__(facts)
        self._written: tuple[int, dict[str, float]] = (0, {})  # the newest tags and their step

    @abstractmethod
    def line(self, record: StepRecord) -> str:
        """The line of an update."""

    @abstractmethod
    def tags(self, record: StepRecord) -> dict[str, float]:
        """The tags of an update."""

    def step(self, record: StepRecord) -> list[str]:
        """The line of an update, and a hint where the program flushes its event file."""
        lines, period = [self.line(record)], math.lcm(self.every, self.facts.config.log.flush_every)
        if self.facts.folder is not None and record.step % period == 0:
            lines.append(f"To see full metrics 'tensorboard --logdir={self.facts.folder.board_folder}'")
        return lines

    def saved(self, step: int) -> list[str]:
        """The line of a save."""
        return [f"saved a checkpoint at step {step}"]

    def scalars(self, record: StepRecord) -> dict[str, float]:
        """The tags of an update, where they are due; computed once."""
        if record.step % self.every:
            return {}
        if self._written[0] != record.step:
            self._written = (record.step, self.tags(record))
        return self._written[1]

    def object(self, record: StepRecord) -> dict[str, float | str]:
        """The line of metrics_file: the tags, the step and the name of the run."""
        tags = self.scalars(record)
        return {**tags, "step": float(record.step), "run_name": self.facts.config.name} if tags else {}

    def texts(self) -> dict[str, str]:
        """The number of parameters and every field of the config."""
        fields = {info.path: str(info.value) for info in walk(self.facts.config)}
        return {"num_model_parameters": str(self.facts.n_parameters), "libtpu_init_args": "", **fields}

    def seconds(self, record: StepRecord) -> float:
        """Wall time of an update."""
        train = self.facts.config.train
        return train.batch_size * train.seq_len / max(record.tokens_per_second, 1e-9)

    def tflops(self) -> float:
        """TFLOPs of an update on each rank, which is a device here."""
        train = self.facts.config.train
        return self.facts.flops_per_token * train.batch_size * train.seq_len / 1e12 / self.facts.ranks

    def clipped(self, record: StepRecord) -> float:
        """The norm of the gradient after clipping."""
        clip = self.facts.config.optim.clip
        return min(record.grad_norm, clip) if clip > 0 else record.grad_norm


def joined(norms: Mapping[str, float]) -> float:
    """Return the norm of all parameters together."""
    return math.sqrt(math.fsum(norm * norm for norm in norms.values()))
