"""Measure all tables of the bench with one command.

    python bench/tables.py                            # everything: hours on a small machine
    python bench/tables.py --quick                    # one short round of the 9M shape and the small tables
    python bench/tables.py --only steps --families gpt2 --shapes 9M
    python bench/tables.py --only generation attention threads startup
    python bench/tables.py --render                   # write the files again, measure nothing

Measured rows are saved in bench/results/tables_<cpu>.json with commit, date, level and threads, and replaced when they
are measured again. The .md page of the same name, docs/performance.md and the table of README.md are written from them.
MUDD_MAX_ISA caps mudd_core and the baselines; --prefix is put before every measured process. The baselines of steps are
eager and compiled PyTorch, and JAX if MUDD_BENCH_JAX_PYTHON names an interpreter that has it. The exit code is 1 if a
baseline took different steps.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bench_baselines
import row_json
import tables_page
import tables_summary
from mudd_core.cli.race.turns import Program, take_turns
from same_step import another_computation
from shapes import FAMILIES, SHAPES, commit, cpu_name, usable_cores

HERE = Path(__file__).resolve().parent
STEPS = (20, 5)  # numbers of timed and of warm-up steps in a run
QUICK = {"9M": (4, 2), "55M": (2, 1), "162M": (1, 1)}
MIXTRAL_SHAPES = ("9M", "55M")  # 162M would need 8.4 GiB of state in each program
Row = dict[str, Any]


def lines_of(argv: list[str], a: argparse.Namespace, **environment: str) -> list[Row]:
    """Run a program of the bench; return the JSON objects that it prints."""
    whole = [*shlex.split(a.prefix), sys.executable, *argv, "--json"]
    env = {**os.environ, **environment, "PYTHONPATH": str(HERE.parent / "python")}
    done = subprocess.run(whole, cwd=HERE, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def lengths_of(shape: str, a: argparse.Namespace) -> tuple[int, int]:
    """Return the numbers of timed and warm-up steps of a run."""
    timed, warm = QUICK[shape] if a.quick else STEPS
    return a.steps or timed, a.warmup or warm


def steps(a: argparse.Namespace) -> Iterator[dict[str, Row]]:
    """Measure whole steps of every family, shape and program, interleaved; yield case by case."""
    for shape in a.shapes:
        timed, warm = lengths_of(shape, a)
        one = argparse.Namespace(**{**vars(a), "steps": timed, "warmup": warm})
        for family in a.families:
            if family == "mixtral" and shape not in MIXTRAL_SHAPES:
                continue
            rows: dict[str, Row] = {}
            with tempfile.TemporaryDirectory() as folder:
                for row in bench_baselines.measure_case(family, shape, one, Path(folder)):
                    words = another_computation(row, a.precision, None)
                    if words:
                        print(f"{family} {shape} {row['program']}: {words}", file=sys.stderr)
                    kept = {k: v for k, v in row.items() if k not in ("losses", "state", "memory")}
                    kept |= {"precision": a.precision, "other_steps": words}
                    kept |= bench_baselines.shares_of_peak(row)
                    kept |= {"rounds": a.rounds, "steps": timed, "warmup": warm}
                    rows[f"{a.precision} {cap()} {shape} {family} {row['program']}"] = kept
            yield rows


def generation(a: argparse.Namespace) -> Iterator[dict[str, Row]]:
    """Measure the generation of one sequence, compared with the read bandwidth."""
    argv = ["bench_generate.py", "--shapes", *a.shapes, "--threads", str(a.threads)]
    rows = lines_of([*argv, "--rounds", "2" if a.quick else "5"], a)
    yield {f"{r['shape']} {r['family']}": r for r in rows}


def attention(a: argparse.Namespace) -> Iterator[dict[str, Row]]:
    """Measure attention of mudd_core and PyTorch on long sequences."""
    argv = ["bench_attention.py", "--long", "--threads", str(a.threads), "--rounds", "2" if a.quick else "5"]
    yield {r["shape"]: r for r in lines_of(argv, a, **bench_baselines.environment("eager", a.threads))}


def threads(a: argparse.Namespace) -> Iterator[dict[str, Row]]:
    """Compare one thread with all threads, bound to cores, in turn."""
    shape = "9M" if a.quick else "55M"
    timed, warm = lengths_of(shape, a)
    programs = []
    for count in (1, a.threads):
        lengths = bench_baselines.lengths(argparse.Namespace(threads=count, steps=timed, warmup=warm))
        argv = [
            *shlex.split(a.prefix),
            sys.executable,
            str(HERE / "bench_step.py"),
            "--shape",
            shape,
            *lengths,
        ]
        bound = {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores", "OMP_NUM_THREADS": str(count)}
        programs.append(Program([*argv, "--json", "--in-turn"], {**os.environ, **bound}))
    found = [row["tokens_per_second"] for row in take_turns(programs, warm + timed) if row]
    if len(found) < len(programs):
        raise SystemExit("[tables] threads: a run of bench_step.py failed")
    row = {"1": found[0], str(a.threads): found[-1]}
    yield {shape: {"shape": shape, "tokens_per_second": row, "speedup": found[-1] / found[0]}}


def startup(a: argparse.Namespace) -> Iterator[dict[str, Row]]:
    """Measure the import and the time to the first step."""
    yield {"small": lines_of(["bench_startup.py", "--rounds", "3"], a)[0]}


MEASURE = {
    "steps": steps,
    "generation": generation,
    "attention": attention,
    "threads": threads,
    "startup": startup,
}


def cap() -> str:
    """Return the highest level that programs may use."""
    return os.environ.get("MUDD_MAX_ISA", "none")


def conditions(a: argparse.Namespace) -> Row:
    """Return the conditions that every row has."""
    return {
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "cap": cap(),
        "threads": a.threads,
        "quick": a.quick,
    }


def parse() -> argparse.Namespace:
    """Parse the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", nargs="+", choices=MEASURE, default=list(MEASURE))
    p.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    p.add_argument("--shapes", nargs="+", choices=SHAPES)
    p.add_argument("--baselines", nargs="*", choices=("eager", "compile", "jax"))
    p.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    p.add_argument("--rounds", type=int)
    p.add_argument("--steps", type=int, help="timed steps of a run; default by shape")
    p.add_argument("--warmup", type=int, help="steps before them; default by shape")
    p.add_argument("--threads", type=int, default=usable_cores())
    p.add_argument("--prefix", default="", help='put before each run, such as "taskset -c 0,1"')
    p.add_argument("--quick", action="store_true")
    p.add_argument("--render", action="store_true", help="write the files from what was measured before")
    p.add_argument("--results", type=Path, default=HERE / "results")
    p.add_argument("--root", type=Path, default=HERE.parent, help="where README.md and docs/ are")
    a = p.parse_args()
    a.shapes = a.shapes or (["9M"] if a.quick else list(SHAPES))
    a.rounds = a.rounds or 1
    a.jax_python, a.no_ours = os.environ.get("MUDD_BENCH_JAX_PYTHON"), False
    jax = a.precision == "fp32" and not bench_baselines.missing_jax(a.jax_python)
    a.baselines = ["eager", "compile", *(["jax"] if jax else [])] if a.baselines is None else a.baselines
    return a


def main() -> int:
    """Measure table by table, save the rows after each case, and write the pages."""
    a = parse()
    data = a.results / f"tables_{tables_page.slug(cpu_name())}.json"
    kept: dict[str, Any] = {"cpu": cpu_name(), "cores": usable_cores()}
    kept |= json.loads(data.read_text()) if data.exists() else {}
    measured: dict[str, Row] = {}
    for name in [] if a.render else a.only:
        for fresh in MEASURE[name](a):
            for key, row in fresh.items():
                kept.setdefault(name, {})[key] = row | conditions(a)
            measured |= fresh
            a.results.mkdir(parents=True, exist_ok=True)
            data.write_text(row_json.text(json.loads(json.dumps(kept, sort_keys=True)), 2))
    machines = {f: json.loads(f.read_text()) for f in sorted(a.results.glob("tables_*.json"))}
    for file, machine in machines.items():
        file.with_suffix(".md").write_text(tables_page.page(machine))
    sections = {
        a.root / "README.md": tables_summary.headline(list(machines.values())),
        a.root / "docs" / "performance.md": "\n".join(map(tables_summary.summary, machines.values())),
    }
    for place, section in sections.items():
        if place.exists():
            place.write_text(tables_summary.with_section(place.read_text(), section))
    if not a.render:
        print(tables_page.page(kept))
    return 1 if any(row.get("other_steps") for row in measured.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
