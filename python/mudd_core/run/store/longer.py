"""Commands that train a run longer than its config says: in its folder, or from its weights in a new one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from mudd_core.config import Config, differences
from mudd_core.config.pipelines import spec_of
from mudd_core.run.records.events import Summary
from mudd_core.run.store.resumed_config import may_extend


def advice(path: str, saved: Config, asked: Config, done: int, program: Sequence[str]) -> str:
    """Return commands that work instead of a rejected resume after `done` updates: train longer, or resume unchanged.

    path: the work directory, as the user names it. program: the arguments that start this program.
    """
    differ = [change.path for change in differences(saved, asked) if not change.free_on_resume]
    if not differ:
        return ""
    steps, here = asked.train.steps, [*program, f"--workdir={path}"]
    as_it_was = f"\nTo resume it as it was:\n  {shlex.join(here)}"
    if differ != ["train.steps"] or steps <= saved.train.steps or not done:
        return as_it_was
    new = in_new_folder(path, saved, steps - done, done, program)
    text = f"\nTo train {steps - done} more updates with a new schedule, in a new folder:\n  {new}"
    if not asked.train.extend and may_extend(saved, steps, done):
        line = in_place(path, steps, program)
        text += f"\nIts schedule also allows to continue in the same folder:\n  {line}"
    return text


def in_new_folder(path: str, saved: Config, more: int, done: int, program: Sequence[str]) -> str:
    """Return the command that trains `more` updates from the weights of a run of `done` updates, in a new folder."""
    return shlex.join(
        [
            *program,
            f"--config={path}/config.json",
            f"--workdir={path}-to-{done + more}",
            f"train.steps={more}",
            _other_order(saved),
            f"start.load_parameters_path={path}",
            "start.keep_optimizer=true",
        ]
    )


def in_place(path: str, steps: int, program: Sequence[str]) -> str:
    """Return the command that trains a run to `steps` updates in its folder."""
    return shlex.join([*program, f"--workdir={path}", f"train.steps={steps}", "train.extend=true"])


def after_the_end(path: str, saved: Config, summary: Summary, program: Sequence[str]) -> str:
    """Return a line about a finished run, and the command that trains it longer, if one can."""
    said, done = f"{path} is finished.", summary.step
    if not saved.train.save or saved.tune.method == "lora":
        return f"{said} Another --workdir starts a new run."
    if summary.data_end and not spec_of(saved.data.pipeline).mixes_epochs:
        line = shlex.join([*program, f"--workdir={path}", f"data.epochs={saved.data.epochs + 1}"])
        return f"{said} To train one more epoch:\n  {line}"
    if done == saved.train.steps and may_extend(saved, 2 * done, done):
        line = in_place(path, 2 * done, program)
    else:
        line = in_new_folder(path, saved, done, done, program) + " eval.target_loss=0" * summary.reached
    return f"{said} To train {done:,} more step{'s' * (done > 1)}:\n  {line}"


def _other_order(saved: Config) -> str:
    """Return the argument that selects other batches, because the saved seed would repeat the old ones."""
    if saved.data.seed < 0:
        return f"train.seed={(saved.train.seed + 1) % 2**64}"
    return f"data.seed={(saved.data.seed + 1) % 2**63}"
