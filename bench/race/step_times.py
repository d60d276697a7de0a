"""Measure the step times of all models of the race in turn, and the cost of updating only the touched rows."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from contestants import BASE, ROOT, Contestant

from mudd_core.cli.race.timed_steps import WARMUP
from mudd_core.cli.race.turns import Program, take_turns
from shapes import commit, cpu_name, usable_cores

ROW_UPDATE = ROOT / "build/run/bench/row_update"
LOOKUPS = 1024  # tokens of a step of configs/small.py
# The step of configs/small.py in the run of README. Budgets count minutes of that machine, and only ratios to the base
# are measured: so the runs of the base are the same on every machine.
BASE_SECONDS = 0.155


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step: measured with the dense update of the tables, and with the update of touched rows instead."""

    dense: float
    charged: float


def measure(contestants: list[Contestant], count: int, threads: int) -> dict[str, StepTime]:
    """Return the median seconds of `count` steps of each model; all take their steps in turn."""
    programs: dict[tuple[str, bool], Program] = {}
    for one in (each for each in contestants if not each.timed_as):
        programs[one.name, False] = _program(one.config, one.arguments, count, threads)
        if one.table is not None:
            programs[one.name, True] = _program(one.config, one.small_table(), count, threads)
    reports = take_turns(list(programs.values()), WARMUP + count)
    seconds = {}
    for (name, is_small), report in zip(programs, reports, strict=True):
        if report is None:
            raise SystemExit(f"[race] {name}: the program that takes its steps failed; its error is above")
        seconds[name, is_small] = statistics.median(report["seconds"])
    return {one.name: _step_time(one, seconds, threads) for one in contestants if not one.timed_as}


def _step_time(one: Contestant, seconds: dict[tuple[str, bool], float], threads: int) -> StepTime:
    dense = seconds[one.name, False]
    if one.table is None:
        return StepTime(dense, dense)
    return StepTime(dense, seconds[one.name, True] + row_seconds(*one.table, threads))


def _program(config: str, arguments: tuple[str, ...], count: int, threads: int) -> Program:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    os.chdir(ROOT)  # the arguments name files of examples/
    module = "mudd_core.cli.race.timed_steps"
    return Program([sys.executable, "-m", module, str(count), config, *arguments], environment)


def row_seconds(rows: int, width: int, tables: int, threads: int) -> float:
    """Return the seconds in which the C++ loop updates the rows of one step in all tables: w, m and v of each."""
    if not ROW_UPDATE.exists():
        raise SystemExit(
            f"[race] {ROW_UPDATE.relative_to(ROOT)} is missing; type: ninja -C build/run row_update"
        )
    numbers = (rows, width, LOOKUPS, 50, threads)
    done = subprocess.run([str(ROW_UPDATE), *map(str, numbers)], capture_output=True, text=True, check=True)
    return tables * float(json.loads(done.stdout)["adam"])


def write(path: Path, times: dict[str, StepTime]) -> None:
    """Write the times as JSON, with the machine and the commit."""
    about = {
        "cpu": cpu_name(),
        "threads": usable_cores(),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d"),
    }
    found = {name: asdict(one) for name, one in times.items()}
    path.write_text(json.dumps({**about, "seconds": found}, indent=1) + "\n")


def read(path: Path) -> dict[str, StepTime]:
    """Return the times of a file relative to BASE_SECONDS of the base. Raise SystemExit if it does not exist."""
    if not path.exists():
        raise SystemExit(
            f"[race] {path} is missing; type: python bench/race/race.py measure on a quiet machine"
        )
    found = {name: StepTime(**one) for name, one in json.loads(path.read_text())["seconds"].items()}
    if BASE not in found:
        raise SystemExit(f"[race] {path}: expected the times of {BASE}; measure again")
    scale = BASE_SECONDS / found[BASE].dense
    return {name: StepTime(scale * one.dense, scale * one.charged) for name, one in found.items()}
