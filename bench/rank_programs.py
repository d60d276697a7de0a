"""Start the programs of bench_ranks.py, and build the rows of its memory tables."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from bench_step import default_micro_batch, run_config

# bench_step sets sys.path for this import
from mudd_core.cli.mpirun import Job, find_mpirun, mpirun_argv, this_machine
from mudd_core.config import Config
from mudd_core.config.fields import replace_path
from mudd_core.run.build.memory_plan import ALONE, MemoryPlan, Place
from rank_memory import formula_mib, parameters
from shapes import SHAPES

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]


def environment() -> dict[str, str]:
    """Return the environment of all programs: root may start mpirun, and variables of an outer launcher are removed."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "SLURM_"))}
    return {**own, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def launcher(ranks: int, threads: int, command: list[str]) -> list[str]:
    """Return the command with which `launch.py --ranks` starts the ranks."""
    return mpirun_argv(
        Job(ranks, threads=threads),
        this_machine(),
        command,
        ["MUDD_MAX_ISA"] if "MUDD_MAX_ISA" in os.environ else [],
    )


def ours(ranks: int, threads: int, start: str, options: list[str]) -> list[str]:
    """Return the command of bench_step.py: plain Python, `ranks` ranks as launch.py starts them, or a bare mpirun."""
    command = [sys.executable, str(HERE / "bench_step.py"), "--threads", str(threads), *options]
    if start == "plain":
        return command
    if start == "ranks":
        return launcher(ranks, threads, command)
    return [find_mpirun(), *start.split()[1:], "-n", str(ranks), *command]


def newest(tree: Path, name: str) -> Path | None:
    """Return the most recently built program with this name; None if there is none."""
    found = [*tree.glob(f"build/*/bench/{name}"), *tree.glob(f"build/*/*/bench/{name}")]
    return max(found, key=lambda file: file.stat().st_mtime, default=None)


def measured(row: Row) -> Row:
    """Return the memory in MiB used since the program started: the largest of a rank by kind, and the node's sum."""
    used = row["memory_of_ranks"]
    more = {
        k: [one["now"][k] - one["program"][k] for one in used] for k in ("private", "shared", "rss", "pss")
    }
    return {
        "ranks": int(row["ranks"]),
        **{f"{kind}_of_a_rank": max(values) for kind, values in more.items()},
        "node": sum(more["pss"]),
        "booked_by_rank_0": {kind: count / 2**20 for kind, count in row["memory"].items()},
    }


def planned(config: Config, place: Place) -> dict[str, float]:
    """Return the MiB by kind of a rank's plan, without evaluation."""
    plan = {kind: count / 2**20 for kind, count in MemoryPlan.of(config.model, config, place).bytes().items()}
    plan.pop("evaluation")
    return plan


def memory_row(row: Row, shape: str, tiny: list[str]) -> Row:
    """Return the measured memory, and the memory that formula and plan predict for it."""
    s, world, found = SHAPES[shape], int(row["ranks"]), measured(row)
    if tiny:
        return found
    config = run_config(s, "transformer_pp", default_micro_batch(s))
    plan = planned(config, Place(world, world) if world > 1 else ALONE)
    activations = world * (plan["arena"] + plan["packed"])
    found["formula_node"] = formula_mib(parameters(s), 0, world)["a_node"] + activations
    found["plan_node"] = world * sum(plan.values())
    return found


def mesh_row(row: Row, shape: str, family: str, fields: dict[str, int], tiny: list[str]) -> Row:
    """Return the same for ranks that are nodes, with these mesh fields. Only the plan has a formula for them."""
    s, world, found = SHAPES[shape], int(row["ranks"]), measured(row)
    if tiny:
        return found
    config = run_config(s, family, default_micro_batch(s))
    for name, value in fields.items():
        config = replace_path(config, name, value)
    plan = planned(config, Place(world, 1))
    return {**found, "plan_of_a_rank": plan, "plan_node": world * sum(plan.values())}
