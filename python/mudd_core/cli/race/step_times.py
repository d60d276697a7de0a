"""The step time of each recipe: measured in turn with the first recipe, kept in times.json, then never changed.

So a race that takes days, or runs on a busy machine, keeps the numbers of steps of its first hour.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.members import build, member
from mudd_core.base.surroundings import environment_text
from mudd_core.base.types import Json, is_number
from mudd_core.cli.race.recipes import Recipe
from mudd_core.cli.race.timed_steps import WARMUP
from mudd_core.cli.race.turns import Program, take_turns
from mudd_core.run.store.json_files import read_object, write_json

FILE = "times.json"


@dataclass(frozen=True)
class StepTime:
    """seconds: median of a step. digest: of the recipe when it was timed (Recipe.digest)."""

    seconds: float
    digest: str


@dataclass(frozen=True)
class StepTimes:
    """The times of the recipes by name. machine: the machine on which they were measured."""

    machine: str
    times: Mapping[str, StepTime]

    def seconds(self, recipe: Recipe) -> float:
        """Return the seconds of a step of a recipe that has been timed."""
        return self.times[recipe.name].seconds

    def steps(self, recipe: Recipe, minutes: float) -> int:
        """Return the number of steps that fit into a budget, at least 1."""
        return max(1, int(60 * minutes / self.seconds(recipe)))


def read_times(folder: Path) -> StepTimes | None:
    """Return the times of a race's folder; None if there are none yet. Raise FormatError if malformed."""
    file = folder / FILE
    if not file.exists():
        return None
    found = read_object(file)
    times = member(found, "times", dict, file)
    return StepTimes(
        member(found, "machine", str, file),
        {name: build(StepTime, member(times, name, dict, file), file) for name in times},
    )


def timed(
    recipes: Sequence[Recipe], folder: Path, data: Path, count: int, say: Callable[[str], None]
) -> StepTimes:
    """Return the times of all recipes; measure those that have none and add them to times.json.

    data: the folder of the ids for programs. count: timed steps of each recipe. Raise UserError if a recipe has
    changed since it was timed, or if its program fails.
    """
    known = read_times(folder)
    times = {} if known is None else dict(known.times)
    here = environment_text("fp32")
    machine = here if known is None else known.machine
    if machine != here:
        say(f"note: the step times are of {machine}; this is {here}")
    base = recipes[0]
    for recipe in recipes:
        digest = recipe.digest()
        if recipe.name in times:
            _require_same(times[recipe.name], recipe, digest, folder)
            continue
        say(f"timing the steps of {recipe.name}")
        if recipe is base:
            (seconds,) = _measure([base], data, count)
        else:
            ours, alone = _measure([recipe, base], data, count)
            seconds = times[base.name].seconds * ours / alone  # a busy machine slows both
        times[recipe.name] = StepTime(seconds, digest)
        write_json(folder / FILE, {"machine": machine, "times": {n: asdict(t) for n, t in times.items()}})
    return StepTimes(machine, times)


def _require_same(time: StepTime, recipe: Recipe, digest: str, folder: Path) -> None:
    if time.digest != digest:
        raise UserError(
            f"[race] --recipes: expected {recipe.name} with the settings and files of {folder / FILE}, got others; "
            "give it a new name, or type another --out"
        )


def _measure(recipes: Sequence[Recipe], data: Path, count: int) -> list[float]:
    """Return the median seconds of `count` steps of each recipe; they take their steps in turn."""
    programs: list[Program] = []
    try:
        for one in recipes:
            programs.append(Program(_argv(one, data, count), dict(os.environ)))
        reports = take_turns(programs, WARMUP + count)
    finally:
        for program in programs:
            program.stop()
    medians = []
    for recipe, report in zip(recipes, reports, strict=True):
        if report is None:
            raise UserError(
                f"[race] {recipe.name}: the process that times its steps failed; its error is above"
            )
        medians.append(_median(recipe, report.get("seconds"), count))
    return medians


def _median(recipe: Recipe, seconds: Json, count: int) -> float:
    """Return the median of the last `count` seconds; raise UserError unless they are numbers above 0."""
    last = seconds[-count:] if isinstance(seconds, list) else []
    times = [float(one) for one in last if is_number(one) and 0 < one < math.inf]
    if not times or len(times) < len(last):
        raise UserError(
            f'[race] {recipe.name}: expected {{"seconds": [...]}} with numbers above 0 as the last line of the '
            "timed program, got another line"
        )
    return statistics.median(times)


def _argv(recipe: Recipe, data: Path, count: int) -> list[str]:
    if recipe.is_program:
        return [*recipe.arguments, f"--data={data}", f"--steps={WARMUP + count}", "--seed=0", "--in-turn"]
    module = "mudd_core.cli.race.timed_steps"
    return [sys.executable, "-m", module, str(count), recipe.config, *recipe.arguments]
