"""More steps or epochs for a run that exists.

Steps are added in place if the schedule allows it, else in a new run from the weights.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from mudd_core.base.errors import UserError
from mudd_core.config import Config, differences
from mudd_core.config.fields import replace_path
from mudd_core.config.pipelines import spec_of
from mudd_core.engine.rates import learning_rate


def may_extend(saved: Config, steps: int, done: int) -> bool:
    """Whether a run of `steps` updates has the learning rates that the saved one had in its first `done` updates."""
    longer = replace_path(saved, "train.steps", steps)
    return all(learning_rate(saved, t) == learning_rate(longer, t) for t in range(done))


def extended(saved: Config, asked: Config, done: int) -> Config:
    """The saved config with the steps that train.extend asks for; UserError where its schedule does not allow them."""
    steps = asked.train.steps
    if not asked.train.extend or steps <= saved.train.steps:
        return saved
    if not may_extend(saved, steps, done):
        raise UserError(
            f"[resume] train.extend: expected a schedule whose rates of the first {done} updates do not depend on "
            f"train.steps (constant, or wsd before its decay), got {saved.optim.schedule} with "
            f"{saved.train.steps} steps"
        )
    longer: Config = replace_path(saved, "train.steps", steps)
    return longer


def with_more_epochs(saved: Config, asked: Config) -> Config:
    """Return the saved config with the requested data.epochs if the run ends with its data and the value is larger.

    The learning rates do not depend on data.epochs, so no schedule is checked.
    """
    epochs = asked.data.epochs
    if not (saved.train.to_data_end and epochs > saved.data.epochs > 0):
        return saved
    if spec_of(saved.data.pipeline).mixes_epochs:
        return saved
    longer: Config = replace_path(saved, "data.epochs", epochs)
    return longer


def advice(path: str, saved: Config, asked: Config, done: int, program: Sequence[str]) -> str:
    """Commands that work for a refused resume of a run with `done` updates: train longer, or resume it as it was.

    path: its work directory, as the user names it. program: the arguments that start this program.
    """
    differ = [change.path for change in differences(saved, asked) if not change.free_on_resume]
    if not differ:
        return ""
    steps, here = asked.train.steps, [*program, f"--workdir={path}"]
    as_it_was = f"\nTo resume it as it was:\n  {shlex.join(here)}"
    if differ != ["train.steps"] or steps <= saved.train.steps or not done:
        return as_it_was
    new = shlex.join(
        [
            *program,
            f"--config={path}/config.json",
            f"--workdir={path}-to-{steps}",
            f"train.steps={steps - done}",
            _other_order(saved),
            f"start.load_parameters_path={path}",
            "start.keep_optimizer=true",
        ]
    )
    text = f"\nTo train on for {steps - done} updates with a schedule of their own, in a new folder:\n  {new}"
    if not asked.train.extend and may_extend(saved, steps, done):
        in_place = shlex.join([*here, f"train.steps={steps}", "train.extend=true"])
        text += f"\nIts schedule allows to go on in place, too:\n  {in_place}"
    return text


def _other_order(saved: Config) -> str:
    """The argument that gives a run other batches: the saved seed would repeat the old ones."""
    if saved.data.seed < 0:
        return f"train.seed={(saved.train.seed + 1) % 2**64}"
    return f"data.seed={(saved.data.seed + 1) % 2**63}"
