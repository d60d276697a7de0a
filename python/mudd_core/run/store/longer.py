"""Commands that train a run longer than its config says: in its folder, or from its weights in a new one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from mudd_core.base.paths import free_folder
from mudd_core.base.storage import is_url
from mudd_core.config import Config
from mudd_core.config.average import averaging_of
from mudd_core.config.fields import Scalar
from mudd_core.config.phases import parse_phases
from mudd_core.config.pipelines import spec_of
from mudd_core.config.replaced import override
from mudd_core.run.records.events import Summary
from mudd_core.run.store.resumed_config import may_extend


def fields_in_new_folder(path: str, saved: Config, more: int) -> dict[str, Scalar]:
    """Return the fields of a run that trains `more` updates from the weights of a run at `path`."""
    # The saved seed would repeat the batches of the run.
    seed, of_data = (saved.train.seed + 1) % 2**64, (saved.data.seed + 1) % 2**63
    order = ("train.seed", seed) if saved.data.seed < 0 else ("data.seed", of_data)
    start = ("start.load_parameters_path", path)
    # With train.epochs, train.steps would have no effect.
    length: list[tuple[str, Scalar]] = [("train.epochs", 0)] if saved.train.epochs else []
    fitted = _fitted(saved, more)
    return dict([("train.steps", more), *length, *fitted, order, start, ("start.keep_optimizer", True)])


def _fitted(saved: Config, more: int) -> list[tuple[str, Scalar]]:
    """Return other values for the fields of a run that need more than `more` updates."""
    fitted: list[tuple[str, Scalar]] = []
    averaging, optim = averaging_of(saved.train.average), saved.optim
    if averaging is not None and averaging.last > more:
        fitted.append(("train.average", f"last:{more}"))
    if optim.schedule == "phases" and not optim.schedule_steps:
        try:
            parse_phases(optim.phases, more)
        except ValueError:  # no update is left for the last phase, of `rest` updates
            fitted.append(("optim.phases", optim.phases.rpartition(",")[2].strip()))
    return fitted


def longer_workdir(path: str, steps: int) -> str:
    """Return the first free name for a longer run of `steps` updates: runs/tiny-to-1000, runs/tiny-to-1000-2."""
    name = f"{path}-to-{steps}"
    return name if is_url(path) or not os.path.lexists(name) else str(free_folder(Path(f"{name}-2")))


def in_new_folder(path: str, saved: Config, more: int, done: int, program: Sequence[str]) -> str:
    """Return the command that trains `more` updates from the weights of a run of `done` updates, in a new folder."""
    fields = fields_in_new_folder(path, saved, more)
    words = [override(name, value) for name, value in fields.items()]
    new = longer_workdir(path, done + more)
    return shlex.join([*program, f"--config={path}/config.json", f"--workdir={new}", *words])


def in_place(path: str, steps: int, program: Sequence[str]) -> str:
    """Return the command that trains a run to `steps` updates in its folder."""
    return shlex.join([*program, f"--workdir={path}", f"train.steps={steps}", "train.extend=true"])


def can_be_longer(saved: Config) -> bool:
    """Return True if a finished run can be trained further: it has checkpoints, and not of adapters alone."""
    return saved.train.save and saved.tune.method != "lora"


def after_the_end(path: str, saved: Config, summary: Summary, program: Sequence[str]) -> str:
    """Return a line about a finished run, and the command that trains it longer, if one can."""
    said, done = f"{path} is finished.", summary.step
    if not can_be_longer(saved):
        return f"{said} Another --workdir starts a new run."
    if summary.data_end and not saved.data.mix and not spec_of(saved.data.pipeline).mixes_epochs:
        line = shlex.join([*program, f"--workdir={path}", f"data.epochs={saved.data.epochs + 1}"])
        return f"{said} To train one more epoch:\n  {line}"
    if done == saved.train.steps and may_extend(saved, 2 * done, done):
        line = in_place(path, 2 * done, program)
    else:
        line = in_new_folder(path, saved, done, done, program) + " eval.target_loss=0" * summary.reached
    return f"{said} To train {done:,} more step{'s' * (done > 1)}:\n  {line}"


def in_python(path: str, saved: Config, done: int) -> str:
    """Return the expression that trains a finished run for as many steps again; `trainer` is its Trainer."""
    fields: dict[str, Scalar] = {"train.steps": 2 * done, "train.extend": True}
    if not may_extend(saved, 2 * done, done):
        fields, path = fields_in_new_folder(path, saved, done), longer_workdir(path, 2 * done)
    return f"mc.Trainer(trainer.config.replace({fields}), {path!r}).fit()"
