"""Compare recipes at equal minutes: time their steps, train each with its own whole schedule, show who is ahead.

    python3 launch.py race --recipes=transformer_pp/small.py,small.py
    python3 launch.py race --recipes=mine.txt --minutes=3,7,15 --seeds=3 --out=runs/race
    python3 launch.py race --recipes=mine.txt --plan

A recipe is a config, or a line `NAME: CONFIG ARGUMENTS` of a file mine.txt, or `NAME: ! COMMAND` for a program
(docs/running/look.md). The first one is the reference. The steps of all recipes are timed in turn once, so start a race
on a quiet machine; a busy one later only makes it longer. Ctrl-C or SIGTERM saves the run and exits with code 75; the
same command resumes, and more recipes, minutes or seeds may be added. It writes race.json and race.html to --out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from mudd_core.base.paths import local, output_folder
from mudd_core.base.regular_files import write_text
from mudd_core.base.show.printable import visible
from mudd_core.base.units import duration
from mudd_core.cli.race.data_files import write_data
from mudd_core.cli.race.recipes import Recipe, read_recipes
from mudd_core.cli.race.result import RaceResult, page, result_values, terminal_table, with_times_to_first
from mudd_core.cli.race.runs import (
    PlannedRun,
    ended_result,
    planned,
    planned_runs,
    remove_checkpoints,
    result_of,
)
from mudd_core.cli.race.standings import Row, measure_of, standing, value_of
from mudd_core.cli.race.step_times import StepTimes, timed
from mudd_core.cli.sweep.processes import STOPPED, Processes, stop_signals
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.config.values import number
from mudd_core.run.store.json_files import write_json

JSON, PAGE = "race.json", "race.html"


@dataclass(frozen=True)
class Asked:
    """The parsed arguments. minutes: the budgets in ascending order."""

    recipes: tuple[Recipe, ...]
    minutes: tuple[float, ...]
    seeds: int
    out: Path
    jobs: int
    timed_steps: int
    plan: bool
    keep: bool

    @property
    def data(self) -> Path:
        """The folder of the ids for programs."""
        return self.out / "data"


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    asked = _asked(words)
    processes = Processes(asked.jobs, "race", is_quiet=True)
    output_folder(asked.out, "[race] --out")
    try:
        with stop_signals(_interrupt):
            times = _prepared(asked)
    except KeyboardInterrupt:
        _say("stopped before the first run; the same command continues")
        return STOPPED
    runs = planned_runs(asked.recipes, times, asked.minutes, asked.seeds, asked.out)
    left = [run for run in runs if result_of(run) is None]
    seconds = sum(run.steps * times.seconds(run.recipe) for run in left) / asked.jobs
    _say(
        f"{len(runs)} runs, {len(left)} left, about {duration(seconds)} without their validations; {asked.out}"
    )
    if asked.plan:
        for run in left:
            _say(f"  {run.recipe.name}, seed {run.seed}: {run.steps:,} steps")
        return 0
    code = _train(asked, times, processes, left)
    result = _result(asked, times)
    write_json(asked.out / JSON, result_values(result))
    write_text(asked.out / PAGE, page(result))
    print(f"\n{visible(terminal_table(result))}\n\nwrote {asked.out / JSON}\n      {asked.out / PAGE}")
    if code == STOPPED:
        print("stopped and saved; the same command resumes")
    return code


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _prepared(asked: Asked) -> StepTimes:
    """Write the ids for programs; return the step times, with a note for each budget shorter than a step."""
    if any(one.is_program for one in asked.recipes):
        write_data(next(one for one in asked.recipes if not one.is_program).loaded(), asked.data)
    times = timed(asked.recipes, asked.out, asked.data, asked.timed_steps, _say)
    for recipe in asked.recipes:
        seconds = times.seconds(recipe)
        for budget in (one for one in asked.minutes if 60 * one < seconds):
            _say(
                f"note: {budget:g} minutes are less than a step of {recipe.name}, {seconds:.3g} s; it runs 1 step"
            )
    return times


def _say(text: str) -> None:
    print(visible(text), flush=True)


def _train(asked: Asked, times: StepTimes, processes: Processes, left: Sequence[PlannedRun]) -> int:
    """Train the runs that are left; return 0, the exit code of the first failure, or STOPPED."""
    failed = list[int]()

    def title(number: int) -> str:
        return f"run {number + 1} of {len(left)}: {left[number].recipe.name}, seed {left[number].seed}"

    def starts(number: int) -> None:
        run = left[number]
        _say(f"{title(number)}: {run.steps:,} steps, about {duration(run.steps * times.seconds(run.recipe))}")

    def ended(number: int, code: int, messages: str) -> None:
        result, fault = ended_result(left[number], code)
        if result is not None:
            if not asked.keep:
                remove_checkpoints(left[number])
            value = result.loss if result.bits_per_byte is None else result.bits_per_byte
            shown = f"{value:.4f}" if math.isfinite(value) else "its validation has no finite loss"
            _say(f"{title(number)}: {shown}")
        elif code != STOPPED:
            failed.append(code or 1)
            _say(f"{title(number)}: exit code {code}\n{messages}\n{fault}".rstrip())

    if not processes.run([run.argv(asked.data) for run in left], starts, ended):
        return STOPPED
    return failed[0] if failed else 0


def _result(asked: Asked, times: StepTimes) -> RaceResult:
    found = {
        (recipe.name, budget): [
            result_of(planned(recipe, times, budget, seed, asked.out)) for seed in range(asked.seeds)
        ]
        for recipe in asked.recipes
        for budget in asked.minutes
    }
    measure = measure_of([one for results in found.values() for one in results])
    values = {key: [value_of(one, measure) for one in results] for key, results in found.items()}
    first = asked.recipes[0].name
    rows = [
        Row(
            recipe,
            times.seconds(recipe),
            tuple(
                standing(
                    budget, times.steps(recipe, budget), values[recipe.name, budget], values[first, budget]
                )
                for budget in asked.minutes
            ),
        )
        for recipe in asked.recipes
    ]
    return RaceResult(measure, times.machine, asked.seeds, with_times_to_first(rows))


def _asked(words: Sequence[str]) -> Asked:
    parser = ToolArguments("race", __doc__ or "", fields="data.path=my_text")
    parser.add_argument(
        "--recipes", metavar="LIST", help="configs divided by commas, or a file of recipes, NAME.txt"
    )
    parser.add_argument("--minutes", metavar="A,B", default="3", help="budgets of training (default 3)")
    parser.add_argument(
        "--seeds", metavar="N", type=whole_number(1), default=1, help="runs of each budget (default 1)"
    )
    parser.add_argument("--out", metavar="DIR", default="runs/race", help="output folder (default runs/race)")
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=whole_number(1),
        default=1,
        help="runs at the same time, each on its own cores",
    )
    parser.add_argument(
        "--timed-steps", metavar="N", type=whole_number(3), default=25, help="timed steps of each recipe (25)"
    )
    parser.add_argument(
        "--plan", action="store_true", help="time the steps and print the runs; train nothing"
    )
    parser.add_argument("--keep", action="store_true", help="keep the checkpoints of runs that have ended")
    options, overrides = parser.read(words)
    if not options.recipes:
        parser.require("--recipes")
    minutes = {number("[race] --minutes", one, above=0) for one in options.minutes.split(",")}
    return Asked(
        tuple(read_recipes(options.recipes, overrides)),
        tuple(sorted(minutes)),
        options.seeds,
        local(options.out, "[race] --out"),
        options.jobs,
        options.timed_steps,
        options.plan,
        options.keep,
    )
