"""The training of mc.tune and its result."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.arguments.checks import path_text, require_flag
from mudd_core.base.errors import UserError
from mudd_core.base.paths import local
from mudd_core.base.python_arguments import python_errors
from mudd_core.base.show.tables import html_table
from mudd_core.cli.tune.before_after import Answer, Answers, HeldOut, answers_of, held_out, losses_text
from mudd_core.cli.tune.fields import loss_word
from mudd_core.cli.tune.start import Asked, started
from mudd_core.config import load_config
from mudd_core.config.keywords import override_words
from mudd_core.config.replaced import Value
from mudd_core.interop.load_run import load_run
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.opened.run import Run, folder_named_by
from mudd_core.run.records.events import Summary
from mudd_core.run.store.run_folder import RunFolder


@dataclass(frozen=True, repr=False)
class Tuned:
    """The result of mc.tune. run: for run.generate and mc.export. summary: of the training.

    choices: a line for each chosen field, with the reason. losses: of all validations, in nats per target token;
    the first is of the base. answers: to a few held-out prompts, before and after; empty if the run was stopped.
    of_training: no example is held out, so these prompts are of the training data. held_out: the validations, for pairs
    of answers with the accuracy and the margin of each.
    """

    run: Run
    summary: Summary
    choices: tuple[str, ...]
    losses: tuple[float, ...]
    answers: tuple[Answer, ...]
    of_training: bool = False
    held_out: tuple[HeldOut, ...] = ()

    def __repr__(self) -> str:
        text = "\n".join(filter(None, [losses_text(self.held_out).strip(), self._answers.text()]))
        return (
            f"Tuned('{self.run.path}', step {self.summary.step:,} of {self.summary.steps:,})\n{text}".rstrip()
        )

    def _repr_html_(self) -> str:
        rows = [tuple(vars(one).values()) for one in self.answers]
        title = f"Tuned '{self.run.path}': step {self.summary.step:,} of {self.summary.steps:,}"
        if losses := losses_text(self.held_out).strip():
            title = f"{title}; {losses}"
        if note := self._answers.note:
            title = f"{title}; {note}"
        return html_table(rows, title=title, head=("prompt", "data", "before", "after") if rows else ())

    @property
    def _answers(self) -> Answers:
        return Answers(self.answers, self.of_training)


def tuned(
    base: str | Path | Run,
    data: str | Path,
    workdir: str | Path,
    adapter: str | Path | None,
    loss: str,
    progress: bool,
    fields: Mapping[str, Value],
) -> Tuned:
    """Fine-tune a model as mc.tune documents."""
    require_flag("tune", "progress", progress)
    run = RunFolder(local(path_text("tune", "workdir", workdir), "[tune] workdir"))
    with python_errors({}):
        asked = Asked(
            _base(base) if isinstance(base, Run) else path_text("tune", "base", base),
            path_text("tune", "data", data),
            run,
            "" if adapter is None else path_text("tune", "adapter", adapter),
            [
                *([] if loss == "tokens" else [loss_word(loss, "[tune] loss")]),
                *override_words("tune", fields),
            ],
        )
        with nullcontext() if progress else redirect_stdout(io.StringIO()), started(asked) as start:
            print("\n".join(start.lines), flush=True)
            config = load_config(run.asked_file, [*start.place, *asked.fields])
            with Trainer(config, run.path) as trainer:
                left = trainer.step_done < trainer.config.train.steps
                summary = trainer.fit(progress=progress and left)
        answers = Answers(()) if summary.stopped else answers_of(run, start.base)
    found = tuple(held_out(run))
    losses = tuple(one.loss for one in found)
    choices = tuple(map(str.strip, start.lines))
    return Tuned(load_run(run.path), summary, choices, losses, answers.answers, answers.of_training, found)


def _base(run: Run) -> str:
    """Return the folder of a run. Raise UserError if it was opened at a step before its newest checkpoint."""
    named = folder_named_by(run)
    steps = {folder: step for step, folder in run.checkpoints.items()}
    if named not in steps:
        return str(run.path)
    step, newest = steps[named], max(steps.values())
    if step != newest:
        raise UserError(
            f"[tune] base: expected the newest checkpoint of a run, got step {step} of a run with step {newest}; "
            'type mc.export(run, "FOLDER") and tune that folder'
        )
    return str(RunFolder.holding(named)[0].path)
