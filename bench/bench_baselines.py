"""Time whole training steps of mudd_core against PyTorch, interleaved, each run in a separate process.

    python bench/bench_baselines.py --baselines eager compile jax --out bench/results/baselines_<cpu>_<date>.md

All programs of a shape are alive at once and take their steps in turn, so that a slow second of the machine affects all
of them. The peak of the cores is measured between the steps. The report has the median over rounds of each run's median
step, tokens per second, the fraction of that peak by the FLOP formula of bench/shapes.py, and peak resident memory
(VmHWM).

A baseline is compared only if it takes the same steps. All programs start from one file of weights and read the same
tokens. The losses of all steps must agree within --loss-tolerance. After the last step the norms of all weights and
moments must agree too (same_step.py), which rules out another clip, decay or moment.

MUDD_MAX_ISA caps the baselines as well. JAX is installed in a separate environment, named by --jax-python or
MUDD_BENCH_JAX_PYTHON.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from mudd_core.cli.race.turns import Program, take_turns
from same_step import STATE_TOLERANCE, another_computation, compare
from shapes import (
    BASELINE_CAPS,
    FAMILIES,
    JAX_FAMILIES,
    SHAPES,
    baseline_caps,
    commit,
    cpu_levels,
    cpu_name,
    usable_cores,
)
from workload import parameter_shapes, random_weights

HERE = Path(__file__).resolve().parent
# Number of attempts per round. torch.compile sometimes crashes on a busy machine, and always on some models at AVX-512
# unless its loop tails are scalar. From the second attempt on, the tails are scalar.
ATTEMPTS = 3
Row = dict[str, Any]


def lengths(a: argparse.Namespace) -> list[str]:
    """Return the options that every program accepts."""
    return ["--threads", str(a.threads), "--steps", str(a.steps), "--warmup", str(a.warmup)]


def command(program: str, family: str, shape: str, weights: Path, a: argparse.Namespace) -> list[str]:
    """Return the argv of one run. program: "ours", "jax", or a mode of bench/baselines/torch_step.py."""
    common = ["--family", family, "--shape", shape, "--weights", str(weights), "--json"]
    common += lengths(a)
    if program == "jax":
        cap = os.environ.get("MUDD_MAX_ISA")
        common += ["--max-isa", cap] if cap in BASELINE_CAPS else []
        return [str(a.jax_python), str(HERE / "baselines" / "jax_step.py"), *common]
    common += ["--precision", a.precision]
    if program == "ours":
        return [sys.executable, str(HERE / "bench_step.py"), *common]
    return [sys.executable, str(HERE / "baselines" / "torch_step.py"), "--mode", program, *common]


def environment(program: str, threads: int) -> dict[str, str]:
    """Return the environment of one run: the threads, and for a baseline the variables that cap it at MUDD_MAX_ISA."""
    caps = {} if program == "ours" else baseline_caps()
    return {**os.environ, **caps, "OMP_NUM_THREADS": str(threads)}


def run_round(
    programs: list[str], family: str, shape: str, weights: Path, a: argparse.Namespace
) -> list[Row]:
    """Run all programs step by step in turn and measure the peak of the cores between steps; return all rows."""
    argv = {p: [*command(p, family, shape, weights, a), "--in-turn"] for p in programs}
    argv["limit"] = [
        sys.executable,
        str(HERE / "baselines" / "limit.py"),
        *lengths(a),
        "--precision",
        a.precision,
        "--in-turn",
    ]
    for attempt in range(ATTEMPTS):
        if attempt == 1 and "compile" in argv:
            argv["compile"].append("--scalar-ends")
        started = [Program([*shlex.split(a.prefix), *v], environment(p, a.threads)) for p, v in argv.items()]
        rows = take_turns(started, a.warmup + a.steps)
        for row in rows[:-1]:
            if row:
                print(
                    f"  {row['name']:<28} {row['tokens_per_second']:>8.0f} tokens/s  "
                    f"{row['peak_rss_mib']:>6.0f} MiB  spread {row['spread']:.0%}",
                    flush=True,
                )
        if all(rows):
            return [row for row in rows if row]
    failed = [" ".join(v) for v, row in zip(argv.values(), rows, strict=True) if row is None]
    raise SystemExit(f"{family} {shape}: a program failed {ATTEMPTS} times: {'; '.join(failed)}")


def measure_case(family: str, shape: str, a: argparse.Namespace, folder: Path) -> list[Row]:
    """Run all programs on one shape; return one row for each, mudd_core first."""
    weights = folder / f"{family}_{shape}.npz"
    np.savez(weights, **random_weights(parameter_shapes(SHAPES[shape], family)))  # type: ignore[arg-type]
    programs = [*(["ours"] if not a.no_ours else []), *a.baselines]
    if family not in JAX_FAMILIES:
        programs = [p for p in programs if p != "jax"]
    rounds: list[list[Row]] = []
    for n in range(a.rounds):
        print(f"{family} {shape}, round {n + 1} of {a.rounds}", flush=True)
        rounds.append(run_round(programs, family, shape, weights, a))
    peaks = {f"peak_{name}": statistics.median(r[-1][name] for r in rounds) for name in rounds[0][-1]}
    rows = []
    for i, program in enumerate(programs):
        runs = [r[i] for r in rounds]
        row = dict(runs[0], program=program, family=family, shape=shape, **peaks)
        for key in ("tokens_per_second", "peak_rss_mib", "spread"):
            row[key] = statistics.median(r[key] for r in runs)
        row["best_tokens_per_second"] = max(r["tokens_per_second"] for r in runs)
        rows.append(row)
    for row in rows[1:]:
        compare(row, rows[0])
    return rows


def shares_of_peak(row: Row) -> dict[str, float]:
    """Return the fraction of the fp32 peak and, if a bf16 row has it, the fraction of the bf16 peak."""
    shares = {"share_of_peak": share_of_peak(row)}
    if row.get("peak_unit_gflops"):
        shares["share_of_unit_peak"] = shares["share_of_peak"] * row["peak_gflops"] / row["peak_unit_gflops"]
    return shares


def share_of_peak(row: Row) -> float:
    """Return the fraction of the measured peak, from the model's FLOPs and the time of a step."""
    flops = SHAPES[row["shape"]].flops_per_token(row["family"]) * row["tokens_per_second"]
    return float(flops / row["peak_gflops"] / 1e9)


def heading(a: argparse.Namespace) -> str:
    """Return the conditions of a result: two results are comparable if these are equal."""
    return (
        f"{cpu_name()}, {usable_cores()} cores, {a.threads} threads, flags {' '.join(cpu_levels())}, "
        f"MUDD_MAX_ISA={os.environ.get('MUDD_MAX_ISA', '-')}, Python {platform.python_version()}, "
        f"commit {commit()}, {time.strftime('%Y-%m-%d')}; {a.precision}; "
        f"{a.rounds} {'round' if a.rounds == 1 else 'rounds'} of {a.steps} steps after {a.warmup}\n"
    )


def table(rows: list[Row]) -> str:
    """Return a Markdown table: speed, percentage of peak, memory, and the ratios of mudd_core to each baseline."""
    out = [
        "| family | shape (V, L, D, H, F, T, B) | program | ISA | tokens/s | best | share of peak "
        "| peak RSS MiB | ours : tokens/s | ours : RSS | differences of loss, weights, moments |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    ours: Row = {}
    for r in rows:
        s = SHAPES[r["shape"]]
        ours = r if r["program"] == "ours" else ours
        dims = f"{s.V}, {s.L}, {s.D}, {s.H}, {s.inner(r['family'])}, {s.T}, {s.B}"
        ratios = " | "
        if ours and r is not ours:
            speed = ours["tokens_per_second"] / r["tokens_per_second"]
            ratios = f"{speed:.2f} | {ours['peak_rss_mib'] / r['peak_rss_mib']:.0%}"
        differences = ", ".join(f"{r.get(k + '_difference', 0.0):.0e}" for k in ("loss", *STATE_TOLERANCE))
        out.append(
            f"| {r['family']} | {s.name}: {dims} | {r['name']} | {r['isa']} | {r['tokens_per_second']:.0f} "
            f"| {r['best_tokens_per_second']:.0f} | {share_of_peak(r):.0%} of {r['peak_gflops']:.0f} "
            f"| {r['peak_rss_mib']:.0f} "
            f"| {ratios} | {differences} |"
        )
    return "\n".join(out) + "\n"


def parse() -> argparse.Namespace:
    """Parse the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    p.add_argument("--families", nargs="+", choices=FAMILIES, default=["transformer_pp"])
    p.add_argument("--baselines", nargs="*", choices=("eager", "compile", "jax", "double"), default=["eager"])
    p.add_argument(
        "--precision", choices=("fp32", "bf16"), default="fp32", help="bf16: autocast in the baselines"
    )
    p.add_argument(
        "--jax-python",
        type=Path,
        default=os.environ.get("MUDD_BENCH_JAX_PYTHON"),
        help="interpreter with jax, for --baselines jax; default: MUDD_BENCH_JAX_PYTHON",
    )
    p.add_argument("--no-ours", action="store_true", help="run the baselines alone")
    p.add_argument("--threads", type=int, default=usable_cores())
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--steps", type=int, default=20, help="timed steps of a run")
    p.add_argument("--warmup", type=int, default=5, help="steps before the clock starts")
    p.add_argument("--prefix", default="", help='put before each run, such as "taskset -c 0,1"')
    p.add_argument("--loss-tolerance", type=float, help="default: 1e-4, of routed models 3e-4, in bf16 0.05")
    p.add_argument("--out", type=Path, help="append heading and table to this Markdown file")
    a = p.parse_args()
    if "jax" in a.baselines:
        if a.precision != "fp32":
            p.error("--baselines jax: the JAX baseline computes in fp32 only")
        if missing := missing_jax(a.jax_python):
            p.error(missing)
    return a


def missing_jax(interpreter: Path | None) -> str:
    """Return the reason why the JAX baseline cannot run, and how to install it; empty if it can run."""
    how = (
        "python3 -m venv jax_env && jax_env/bin/pip install jax, then "
        "MUDD_BENCH_JAX_PYTHON=jax_env/bin/python (or --jax-python)"
    )
    if interpreter is None:
        return f"--baselines jax needs an interpreter with jax: {how}"
    try:
        found = (
            subprocess.run([interpreter, "-c", "import jax"], capture_output=True, check=False).returncode
            == 0
        )
    except OSError:
        found = False
    return "" if found else f"--baselines jax: {interpreter} has no jax: {how}"


def main() -> int:
    """Run the cases, print the table, and fail if the losses disagree."""
    a = parse()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for family in a.families:
            for shape in a.shapes:
                rows += measure_case(family, shape, a, Path(folder))
    text = heading(a) + "\n" + table(rows)
    print("\n" + text)
    if a.out is not None:
        a.out.parent.mkdir(parents=True, exist_ok=True)
        with a.out.open("a") as f:
            f.write(text + "\n")
    other = [(r, words) for r in rows if (words := another_computation(r, a.precision, a.loss_tolerance))]
    for r, words in other:
        print(f"{r['family']} {r['shape']} {r['program']}: {words}", file=sys.stderr)
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
