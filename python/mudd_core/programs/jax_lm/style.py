"""log.style=jax_lm: the log lines of jax-lm-training, in which steps are numbered from 0."""

from __future__ import annotations

import math

from mudd_core.base.paths import from_here
from mudd_core.run.records.events import SavedStep, StepRecord, Validation, perplexity
from mudd_core.run.report.style import RunFacts, Style

_FIXED = 50  # the original's ETA divides by this number, whatever the period of its lines


class JaxLmStyle(Style):
    """[TRAIN] and [EVAL] lines: means over the steps since the previous line, and over the validation set.

    With log.compat a line has the loss of the first step since the previous line, and the ETA as the original computes
    it.
    """

    ours = False

    def __init__(self, facts: RunFacts) -> None:
        super().__init__(facts)
        train = facts.config.train
        self._per_epoch = max(1, train.steps // max(1, train.epochs))
        self._losses: list[float] = []  # losses since the previous line
        self._began = math.nan  # run time in seconds at the previous line
        self._shown = math.nan  # the loss in the newest line
        self._held: list[str] = []  # lines of a save that the original prints after the validation

    def _place(self, step: int) -> str:
        return f"epoch: {step // self._per_epoch} step: {step}/{self.facts.config.train.steps}"

    def step(self, record: StepRecord) -> list[str]:
        """Return the training line if the period divides this step; the line follows the update."""
        train = self.facts.config.train
        if math.isnan(self._began):  # no update has run in this process
            tokens = train.batch_size * train.seq_len
            self._began = record.seconds - tokens / max(record.tokens_per_second, 1e-9)
        self._losses.append(record.loss)
        step, held, self._held = record.step - 1, self._held, []
        if not step or step % train.log_every:
            return held
        took, left = record.seconds - self._began, train.steps - step
        if self.facts.config.log.compat:
            self._shown, seconds = self._losses[0], left * int(took) // _FIXED
        else:
            self._shown = math.fsum(self._losses) / len(self._losses)
            seconds = int(left * took / len(self._losses))
        self._losses, self._began = [], record.seconds
        return [*held, f"[TRAIN] {self._place(step)} {_shown(self._shown)} ETA {clock(seconds)} "]

    def validated(self, result: Validation) -> list[str]:
        """Return the line of a validation, numbered like the previous step, then the held lines of a save."""
        held, self._held = self._held, []
        return [f"[EVAL] {self._place(max(0, result.step - 1))} {_shown(result.val_loss)} ", *held]

    def saved(self, step: int) -> list[str]:
        """Return the line of a save: the checkpoint folder, relative to the current folder if it is inside."""
        assert self.facts.folder is not None  # a run that saves has a folder
        line = f"save checkpoint to {from_here(self.facts.folder.path)}/"
        train = self.facts.config.train
        due = step in (train.steps, 0) or step % self._per_epoch == 0
        if due or train.ends_period(train.eval_every, step):
            self._held = [line]
            return []
        return [line]

    def restored(self, found: SavedStep) -> list[str]:
        """Return the lines of a resume; they say that no step is lost."""
        return [f"train state restored from {found.path}", f"skip train step to {found.step - 1}"]

    def tracked(self, record: StepRecord) -> dict[str, float]:
        """Return the values of a training line."""
        loss = record.loss if math.isnan(self._shown) else self._shown
        return {"loss": loss, "ppl": perplexity(loss), "epoch": float((record.step - 1) // self._per_epoch)}

    def eval_tracked(self, result: Validation) -> dict[str, float]:
        """Return the values of a validation."""
        return {"eval_loss": result.val_loss, "eval_ppl": perplexity(result.val_loss)}


def clock(seconds: int) -> str:
    """Format seconds as HH:MM:SS, with two digits or more for the hours."""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _shown(loss: float) -> str:
    return f"loss: {loss:.4f} ppl: {perplexity(loss):.2f}"
