"""log.style=mu_transformer: the lines and the tracker's keys of mu-Transformer."""

from __future__ import annotations

from mudd_core.config import MupConfig
from mudd_core.config.fields import walk
from mudd_core.programs.mu_transformer.keys_values import keys_of
from mudd_core.run.records.events import StepRecord, Validation
from mudd_core.run.report.style import RunFacts, Style


class MuTransformerStyle(Style):
    """A line for each field at the start, then a dict every train.log_every updates.

    step is the number of updates. With log.compat it is the index of the batch, so the first line follows the first
    update. As in the original, sec_per_step of that line is still divided by the whole period.
    """

    ours = False

    def __init__(self, facts: RunFacts) -> None:
        super().__init__(facts)
        train = facts.config.train
        self._tokens = train.batch_size * train.seq_len
        self._began: float | None = None  # run time in seconds at the previous line
        self._counted = 0  # updates since the previous line
        self._val_loss: float | None = None

    def started(self) -> list[str]:
        """Return the flags, then the fields of the config under their original names, each once."""
        config = self.facts.config
        lines = {"workdir": self.facts.folder, "mode": "train", "wb_enabled": config.log.wandb != "off"}
        of_ours = {info.path: info.value for info in walk(config)}
        fields = self.facts.fields or (keys_of(config) if isinstance(config.model, MupConfig) else of_ours)
        return [f"{name}: {value}" for name, value in {**lines, **fields, **lines}.items()]

    def step(self, record: StepRecord) -> list[str]:
        """Return the dict if it is due."""
        train, compat = self.facts.config.train, self.facts.config.log.compat
        if self._began is None:  # no update has run in this process
            self._began = record.seconds - self._step_seconds(record)
        self._counted += 1
        number = record.step - 1 if compat else record.step
        if number % train.log_every and (compat or record.step != train.steps):
            return []
        seconds = (record.seconds - self._began) / (train.log_every if compat else self._counted)
        self._began, self._counted = record.seconds, 0
        values = {
            "step": number,
            "sec_per_step": seconds,
            "loss_avg": self._loss(record),
            "val_loss_avg": self._val_loss,
            "mfu": self._mfu(seconds),
        }
        return [str(values)]

    def validated(self, result: Validation) -> list[str]:
        """Return no line: the next dict contains the loss."""
        self._val_loss = result.val_loss
        return []

    def tracked(self, record: StepRecord) -> dict[str, float]:
        """Return the values of the dict, their terms, and the statistics."""
        mask, seconds = record.targets / self._tokens, self._step_seconds(record)
        values = {
            "loss_avg": self._loss(record),
            "loss_term_avg": self._loss(record) * mask,
            "loss_mask_avg": mask,
            "param_count_total": float(self.facts.n_parameters),
            "sec_per_step": seconds,
            "mfu": self._mfu(seconds),
            **record.statistics,
        }
        return values if self._val_loss is None else {**values, "val_loss_avg": self._val_loss}

    def eval_tracked(self, result: Validation) -> dict[str, float]:
        """Return the loss of a validation."""
        return {"val_loss_avg": result.val_loss}

    def _step_seconds(self, record: StepRecord) -> float:
        return self._tokens / max(record.tokens_per_second, 1e-9)

    def _loss(self, record: StepRecord) -> float:
        """Return the mean over the targets, whatever the gradient's denominator is."""
        if self.facts.config.loss.normalize != "all_slots" or not record.targets:
            return record.loss
        return record.loss * self._tokens / record.targets

    def _mfu(self, seconds: float) -> float:
        """Return the percentage of the measured peak, by the original's count of 6 n + 12 L H D T FLOPs per token."""
        config, model = self.facts.config, self.facts.config.model
        flops = self.facts.flops_per_token
        if isinstance(model, MupConfig):
            heads = model.n_layer * model.n_head * model.d_head
            flops = 6 * self.facts.n_parameters + 12 * heads * config.train.seq_len
        return 100 * flops * self._tokens / max(seconds, 1e-12) / self.facts.peak.flops
