"""The runs of a race: their steps, commands and results. Each is a folder below OUT/runs."""

from __future__ import annotations

import contextlib
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import is_number
from mudd_core.cli.job import program
from mudd_core.cli.race.recipes import Recipe
from mudd_core.cli.race.step_times import StepTimes
from mudd_core.config import Config
from mudd_core.run.store.json_files import read_object
from mudd_core.run.store.run_folder import RunFolder

_WARMUP_SHARE = 8  # a warm-up is at most one eighth of a run


@dataclass(frozen=True)
class PlannedRun:
    """A run of a recipe with a whole schedule of `steps` steps. folder: its work directory."""

    recipe: Recipe
    steps: int
    seed: int
    folder: Path

    @property
    def result_file(self) -> Path:
        """The file whose existence shows that the run has ended."""
        return self.folder / "result.json" if self.recipe.is_program else RunFolder(self.folder).summary_file

    def argv(self, data: Path) -> list[str]:
        """Return the command that trains or resumes the run. data: the folder of the ids for programs."""
        if self.recipe.is_program:
            self.folder.mkdir(parents=True, exist_ok=True)
            own = [
                f"--data={data}",
                f"--steps={self.steps}",
                f"--seed={self.seed}",
                f"--out={self.result_file}",
            ]
            return [*self.recipe.arguments, *own]
        words = [
            *self.recipe.arguments,
            f"train.steps={self.steps}",
            f"train.seed={self.seed}",
            f"train.save_every={max(1, self.steps // 4)}",
            "train.eval_every=0",
            "train.keep_last=1",
            *schedule_words(self.recipe.loaded(), self.steps),
        ]
        return [*program(), "train", f"--config={self.recipe.config}", f"--workdir={self.folder}", *words]


@dataclass(frozen=True)
class RunResult:
    """The end of a run. bits_per_byte: None for data without bytes. loss: nats per target, NaN if it is not finite."""

    bits_per_byte: float | None
    loss: float


def planned_runs(
    recipes: Sequence[Recipe], times: StepTimes, minutes: Sequence[float], seeds: int, out: Path
) -> list[PlannedRun]:
    """Return all runs, short ones first, then seed by seed, so that pairs are complete after an early stop."""
    found: dict[Path, PlannedRun] = {}
    for budget in sorted(minutes):
        for seed in range(seeds):
            for recipe in recipes:
                run = planned(recipe, times, budget, seed, out)
                found.setdefault(run.folder, run)
    return list(found.values())


def planned(recipe: Recipe, times: StepTimes, minutes: float, seed: int, out: Path) -> PlannedRun:
    """Return the run of a recipe for a budget and a seed."""
    steps = times.steps(recipe, minutes)
    return PlannedRun(recipe, steps, seed, out / "runs" / recipe.name / f"{steps}-steps-seed{seed}")


def schedule_words(config: Config, steps: int) -> list[str]:
    """Return the arguments that fit a config's schedule to another number of steps.

    Raise UserError for optim.schedule=phases, whose lengths have no one meaning for another number of steps.
    """
    optim, scale = config.optim, steps / config.train.steps
    if optim.schedule == "phases":
        raise UserError(
            f"[race] {config.name}: expected a schedule that follows train.steps, such as cosine, got "
            "optim.schedule=phases"
        )
    words = []
    if optim.warmup_steps:
        words.append(f"optim.warmup_steps={min(optim.warmup_steps, max(1, steps // _WARMUP_SHARE))}")
    if optim.schedule_steps:
        words.append(f"optim.schedule_steps={max(1, round(scale * optim.schedule_steps))}")
    if optim.schedule == "wsd" and optim.decay_steps:
        words.append(f"optim.decay_steps={max(1, round(scale * optim.decay_steps))}")
    return words


def result_of(run: PlannedRun) -> RunResult | None:
    """Return the result of a run that has ended; None for others. Raise UserError if its file has no loss."""
    if not run.result_file.exists():
        return None
    found = read_object(run.result_file)
    if found.get("stopped") is not None:
        return None
    bits, loss = found.get("val_bits_per_byte"), found.get("val_loss")
    if loss is None and not run.recipe.is_program:
        return RunResult(None, math.nan)  # a finished run of mudd_core whose loss is not finite
    if not is_number(loss) or not (bits is None or is_number(bits)):
        raise UserError(
            f"[race] {run.result_file}: expected a number as val_loss, got {loss}; remove {run.folder}"
        )
    return RunResult(None if bits is None else float(bits), float(loss))


def ended_result(run: PlannedRun, code: int) -> tuple[RunResult | None, str]:
    """Return the result of a process that has ended with an exit code, and what is wrong with its file.

    A program's file that is wrong, or that a failed program has written, becomes result.json.wrong, so that the same
    command runs the program again.
    """
    result, fault = None, ""
    try:
        result = result_of(run) if code == 0 else None
    except (UserError, FormatError) as error:
        fault = str(error)
    if result is None and run.recipe.is_program:
        with contextlib.suppress(FileNotFoundError):
            run.result_file.rename(run.result_file.with_suffix(".json.wrong"))
    if result is None and code == 0 and not fault:
        fault = f"expected {run.result_file} with a result, got none"
    return result, fault


def remove_checkpoints(run: PlannedRun) -> None:
    """Remove the checkpoints of a run that has ended; its curves and its result stay."""
    if not run.recipe.is_program:
        shutil.rmtree(RunFolder(run.folder).checkpoint_folder, ignore_errors=True)
