"""Measure several ranks on one machine of two cores: all metrics of data parallel training, as ratios within one run.

    python bench/bench_ranks.py                            # all parts: 24 minutes on two cores of Zen 4
    python bench/bench_ranks.py --only sums memory baselines  # some; the others keep their last rows
    python bench/bench_ranks.py --only steps --shapes 9M --precision fp32

Programs take their steps in turn (turns.py); times are medians over 20 steps after 5. The parts are:

- steps: 2 ranks x 1 thread and 1 rank, with mpirun and without;
- experts: Mixtral 9M, data parallel and with mesh.expert=2, compared with PyTorch DDP;
- sums: 32 MiB over two shared-memory windows;
- memory: 1, 2 and 4 ranks; meshes: the same with sharded weights or experts;
- losses: the losses of the cut_baselines programs on the first shape; no times, so other work may run.

The other parts use the last shape named:

- zero3: ranks that shard weights;
- baselines: PyTorch DDP with gloo on two processes, fp32;
- cut_baselines: PyTorch FSDP2, and DeepSpeed if MUDD_BENCH_DEEPSPEED_PYTHON names an interpreter that has it;
- link: two network namespaces joined by 1 Gb/s (needs root), in turns of five steps, because weights arrive in the
  forward pass of the next step.

Rows are written to bench/results/ranks_<cpu>_<date>.json, and the page to the .md file of the same name. The exit code
is 1 if a program took different steps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import rank_programs
import ranks_page
import row_json
from mudd_core.cli.race.turns import Program, take_turns
from same_step import another_computation, compare
from shapes import SHAPES, baseline_caps, commit, cpu_levels, cpu_name
from two_nodes import TwoNodes
from workload import parameter_shapes, random_weights

HERE = Path(__file__).resolve().parent
TORCH = HERE / "baselines"
Row = dict[str, Any]
# Program: (ranks, threads, start); start is None for plain Python, else an argument list or the launcher's ranks.
STEPS: dict[str, tuple[int, int, str]] = {
    "1 rank x 2 threads": (1, 2, "plain"),
    "2 ranks x 1 thread": (2, 1, "ranks"),
    "1 rank x 1 thread": (1, 1, "plain"),
    "mpirun -n 1 x 2 threads, bound by default": (1, 2, "mpirun"),
    "mpirun -n 1 x 2 threads, not bound": (1, 2, "mpirun --bind-to none"),
}
THREADS = {label: STEPS[label] for label in ("1 rank x 2 threads", "2 ranks x 1 thread")}
TURN = 5  # steps in a turn of the programs of `link`; the first step of a turn is not timed
BASELINES = {"DDP 25 MB": ("adamw", 25), "DDP 5 MB": ("adamw", 5), "DDP ZeRO 25 MB": ("zero", 25)}


def in_turn(programs: dict[str, list[str]], a: argparse.Namespace, turn: int = 1) -> dict[str, Row]:
    """Run programs in turn; return their rows by label. turn: steps in each turn."""
    lengths = ["--steps", str(a.steps), "--warmup", str(a.warmup), "--in-turn", "--json", *a.tiny]
    environment = {**rank_programs.environment(), **baseline_caps()}  # mudd_core reads only MUDD_MAX_ISA
    started = [Program([*argv, *lengths], environment) for argv in programs.values()]
    rows = take_turns(started, (a.warmup + a.steps) // turn)
    if None in rows:
        raise SystemExit(f"[bench_ranks] a program failed: {dict(zip(programs, rows, strict=True))}")
    return {label: row for label, row in zip(programs, rows, strict=True) if row is not None}


def checked(rows: dict[str, Row], precision: str, family: str = "transformer_pp") -> list[Row]:
    """Return the rows; each has a note if it differs from the first one by more than rounding."""
    first = next(iter(rows.values()))
    found = []
    for label, row in rows.items():
        row |= {"program": label, "family": family, "precision": precision}
        compare(row, first)
        row["other_steps"] = another_computation(row, precision, None)
        found.append({k: v for k, v in row.items() if k not in ("losses", "state")})
    return found


def steps(a: argparse.Namespace, folder: Path, shape: str, precision: str) -> list[Row]:
    """Compare ranks with threads; plain mpirun runs only the small shape, which shows the cost of a start."""
    options = ["--shape", shape, "--precision", precision, "--weights", weights(shape, folder)]
    programs = {
        label: rank_programs.ours(ranks, threads, start, options)
        for label, (ranks, threads, start) in STEPS.items()
        if shape == "9M" or not start.startswith("mpirun")
    }
    return [{**row, "shape": shape} for row in checked(in_turn(programs, a), precision)]


def experts(a: argparse.Namespace, folder: Path, shape: str, precision: str) -> list[Row]:
    """Compare experts sharded across two ranks with ranks that have all experts, and with threads."""
    options = ["--family", "mixtral", "--shape", shape, "--precision", precision]
    options += ["--weights", weights(shape, folder, "mixtral")]
    programs = {
        label: rank_programs.ours(ranks, threads, start, options)
        for label, (ranks, threads, start) in THREADS.items()
    }
    programs[ranks_page.EXPERTS] = rank_programs.ours(2, 1, "ranks", [*options, "--expert", "2"])
    if precision == "fp32":
        own = ["--family", "mixtral", "--shape", shape, "--weights", weights(shape, folder, "mixtral")]
        programs["DDP 25 MB"] = [sys.executable, str(TORCH / "torch_ddp.py"), *own]
    rows = in_turn(programs, a)
    return [{**row, "shape": f"Mixtral {shape}"} for row in checked(rows, precision, "mixtral")]


def zero3(a: argparse.Namespace, folder: Path, shape: str, precision: str) -> list[Row]:
    """Compare two ranks that shard weights, on one node or on two, with one rank of two threads."""
    options = ["--shape", shape, "--precision", precision, "--weights", weights(shape, folder)]
    threads = rank_programs.ours(1, 2, "plain", options)
    rows = in_turn({"1 rank x 2 threads": threads, **cut(options)}, a)
    return [{**row, "shape": shape} for row in checked(rows, precision)]


def cut(options: list[str]) -> dict[str, list[str]]:
    """Return two programs of two ranks that shard weights: on one node, and as two nodes that only exchange
    messages.
    """
    both = [*options, "--zero", "3"]
    return {
        ranks_page.ZERO3: rank_programs.ours(2, 1, "ranks", both),
        ranks_page.ZERO3_NODES: rank_programs.ours(2, 1, "ranks", [*both, "--node", "rank"]),
    }


def cut_baselines(a: argparse.Namespace, folder: Path, shape: str, precision: str) -> list[Row]:
    """Compare PyTorch FSDP2 and DeepSpeed's stage 3 with two ranks of mudd_core."""
    options = ["--shape", shape, "--weights", weights(shape, folder)]
    programs = cut(options)
    programs["FSDP2"] = [sys.executable, str(TORCH / "torch_fsdp2.py"), *options]
    if python := os.environ.get("MUDD_BENCH_DEEPSPEED_PYTHON"):
        programs["DeepSpeed stage 3"] = [python, str(TORCH / "deepspeed_zero3.py"), *options]
    return [{**row, "shape": shape} for row in checked(in_turn(programs, a), precision)]


def losses(a: argparse.Namespace, folder: Path, shape: str, precision: str) -> list[Row]:
    """Return the largest loss difference to mudd_core over all steps, for each program of cut_baselines."""
    kept = ("shape", "program", "precision", "isa", "loss_difference", "other_steps")
    return [
        {**{name: row[name] for name in kept}, "steps": a.warmup + a.steps}
        for row in cut_baselines(a, folder, shape, precision)
    ]


def baselines(a: argparse.Namespace, folder: Path, shape: str, precision: str) -> list[Row]:
    """Return rows of PyTorch DDP and two ranks of mudd_core."""
    options = ["--shape", shape, "--weights", weights(shape, folder)]
    programs = {"2 ranks x 1 thread": rank_programs.ours(2, 1, "ranks", options)}
    for label, (optimizer, bucket) in BASELINES.items():
        programs[label] = [
            *[sys.executable, str(TORCH / "torch_ddp.py"), *options],
            *["--optimizer", optimizer, "--bucket-mb", str(bucket)],
        ]
    return [{**row, "shape": shape} for row in checked(in_turn(programs, a), precision)]


def sums(a: argparse.Namespace, *_: object) -> list[Row]:
    """Return rows of the C++ program window_sum."""
    program = a.sums_program or rank_programs.newest(HERE.parent, "window_sum")
    if program is None:
        return [{"skipped": "window_sum is not built: -DMUDD_BENCH=ON with Open MPI (./run test)"}]
    argv = rank_programs.launcher(2, 1, [str(program), "32", str(2 * a.steps)])
    done = subprocess.run(
        argv, env=rank_programs.environment(), stdout=subprocess.PIPE, text=True, check=True
    )
    return [json.loads(done.stdout.splitlines()[-1])]


def memory(a: argparse.Namespace, folder: Path, shape: str, precision: str) -> list[Row]:
    """Return the memory of ranks after some steps, with the formula and the plan."""
    rows = []
    short = argparse.Namespace(**{**vars(a), "steps": min(2, a.steps), "warmup": 1})
    for world in (1, 2, 4):
        options = ["--shape", shape, "--precision", precision, "--weights", weights(shape, folder)]
        label = f"{world} x 1 thread"
        row = in_turn({label: rank_programs.ours(world, 1, "ranks", options)}, short)[label]
        rows.append({"shape": shape, **rank_programs.memory_row(row, shape, a.tiny)})
    return rows


# The family and mesh of the ranks whose memory is measured; each rank is a node.
MESHES = (("transformer_pp", ("--zero", "3")), ("mixtral", ("--expert", "2")))


def meshes(a: argparse.Namespace, folder: Path, shape: str, precision: str) -> list[Row]:
    """Return the memory of ranks that shard weights or experts, as `memory` does."""
    rows = []
    short = argparse.Namespace(**{**vars(a), "steps": min(2, a.steps), "warmup": 1})
    for family, mesh in MESHES:
        for world in (2, 4):
            options = ["--family", family, "--shape", shape, "--precision", precision, "--node", "rank"]
            options += [*mesh, "--weights", weights(shape, folder, family)]
            label = f"{shape}, {family}, mesh.{mesh[0][2:]}={mesh[1]}"
            row = in_turn({label: rank_programs.ours(world, 1, "ranks", options)}, short)[label]
            fields = {f"mesh.{mesh[0][2:]}": int(mesh[1])}
            rows.append({"shape": label, **rank_programs.mesh_row(row, shape, family, fields, a.tiny)})
    return rows


def link(a: argparse.Namespace, folder: Path, shape: str, _: str) -> list[Row]:
    """Return rows of two nodes over 1 Gb/s, if permitted, with messages instead of shared memory (dist.node=rank)."""
    half = [] if a.tiny else ["--batch", str(SHAPES[shape].B // 2)]
    options = ["--shape", shape, "--weights", weights(shape, folder), "--turn", str(TURN)]
    nodes = [*options, "--node", "rank"]
    meshes = {"": nodes, f", {ranks_page.CUT}": [*nodes, "--zero", "3"]}
    programs = {"1 rank, its half of the batch": rank_programs.ours(1, 1, "plain", [*options, *half])}
    for mesh, own in meshes.items():
        programs[f"{ranks_page.MESSAGES}{mesh}"] = rank_programs.ours(2, 1, "ranks", own)
    whole_turns = argparse.Namespace(
        **{**vars(a), "warmup": TURN, "steps": max(2 * TURN, a.steps // (TURN - 1) * TURN)}
    )
    skipped = []
    try:
        with TwoNodes(folder) as joined:
            over_link = {
                f"{ranks_page.LINK}{mesh}": [*joined.mpirun(), *rank_programs.ours(1, 1, "plain", own)]
                for mesh, own in meshes.items()
            }
            rows = in_turn({**programs, **over_link}, whole_turns, TURN)
    except (OSError, subprocess.CalledProcessError) as error:
        skipped = [{"skipped": f"no network namespaces: {error}"}]
        rows = in_turn(programs, whole_turns, TURN)
    return [*ranks_page.hidden(rows, shape, whole_turns.steps + TURN), *skipped]


Part = Callable[[argparse.Namespace, Path, str, str], list[Row]]
PARTS: dict[str, Part] = {
    "sums": sums,
    "memory": memory,
    "meshes": meshes,
    "steps": steps,
    "experts": experts,
    "zero3": zero3,
    "baselines": baselines,
    "cut_baselines": cut_baselines,
    "losses": losses,
    "link": link,
}


def cases(a: argparse.Namespace) -> Iterator[tuple[str, str, str, str]]:
    """Yield (name, part, shape, precision) for each measurement whose rows are stored separately."""
    for part in a.only:
        if part == "sums":
            yield part, part, "", ""
            continue
        every = part in ("steps", "memory", "meshes")
        shapes = a.shapes if every else {"experts": ["9M"], "losses": a.shapes[:1]}.get(part, a.shapes[-1:])
        for shape in shapes:
            for precision in a.precision if part in ("steps", "experts", "zero3") else ("fp32",):
                yield f"{part} {shape} {precision}", part, shape, precision


def weights(shape: str, folder: Path, family: str = "transformer_pp") -> str:
    """Write a file of initial weights from which all programs start, and return its path."""
    file = folder / f"{family}_{shape}.npz"
    if not file.exists():
        values = random_weights(parameter_shapes(SHAPES[shape], family))
        np.savez(file, **values)  # type: ignore[arg-type]
    return str(file)


def parse() -> argparse.Namespace:
    """Parse the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    p.add_argument("--shapes", nargs="+", choices=("9M", "55M"), default=["9M", "55M"])
    p.add_argument("--precision", nargs="+", choices=("fp32", "bf16"), default=["fp32", "bf16"])
    p.add_argument("--steps", type=int, default=20, help="timed steps")
    p.add_argument("--warmup", type=int, default=5, help="steps before the clock starts")
    p.add_argument("--sums-program", type=Path, help="window_sum; default: the newest one under build/")
    p.add_argument("--tiny", action="store_true", help="4 sequences of 16 tokens, to try the program")
    p.add_argument("--out", type=Path, help="the JSON file in place of bench/results/ranks_<cpu>_<date>.json")
    a = p.parse_args()
    a.tiny = ["--batch", "4", "--seq-len", "16"] if a.tiny else []
    return a


def main() -> int:
    """Measure the parts, save their rows and print them."""
    a = parse()
    machine = "_".join("".join(c if c.isalnum() else " " for c in cpu_name().lower()).split())
    file = a.out or HERE / "results" / f"ranks_{machine}_{time.strftime('%Y-%m-%d')}.json"
    kept: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        for name, part, shape, precision in cases(a):
            start = time.perf_counter()
            rows = PARTS[part](a, Path(folder), shape, precision)
            kept[name] = {
                "rows": rows,
                "cpu": cpu_name(),
                "flags": " ".join(cpu_levels()),
                "max_isa": os.environ.get("MUDD_MAX_ISA", ""),
                "commit": commit(),
                "date": time.strftime("%Y-%m-%d %H:%M"),
                "steps": f"{a.steps} after {a.warmup}",
                "seconds": round(time.perf_counter() - start),
            }
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(row_json.text(kept, 3))
            file.with_suffix(".md").write_text(ranks_page.page(kept))
    print(ranks_page.page(kept))
    other = [row for name, *_ in cases(a) for row in kept[name]["rows"] if row.get("other_steps")]
    for row in other:
        print(f"{row['shape']} {row['program']}: {row['other_steps']}", file=sys.stderr)
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
