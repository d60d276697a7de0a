"""Whole training steps of mudd_core against PyTorch, interleaved, each run in a process of its own.

    python bench/bench_peers.py --peers eager --rounds 3 --out bench/results/peers_<cpu>_<date>.md

One round runs every program once per shape, in turn, so that a slow minute of the machine hits all of them.
Reported: median over rounds of each run's median step; tokens per second; share of the measured fp32 peak by
the FLOP formula of bench/shapes.py; peak resident memory (VmHWM). All programs start from the same weights
and see the same tokens; the largest difference of the losses is printed and must stay below --loss-tolerance.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from shapes import FAMILIES, SHAPES, commit, cpu_flags, cpu_name, usable_cores
from workload import parameter_shapes, random_weights

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]


def command(program: str, family: str, shape: str, weights: Path, a: argparse.Namespace) -> list[str]:
    """Argument list of one run: "ours", or a mode of bench/peers/torch_step.py."""
    common = ["--family", family, "--shape", shape, "--weights", str(weights), "--json"]
    common += ["--threads", str(a.threads), "--steps", str(a.steps), "--warmup", str(a.warmup)]
    if program == "ours":
        return [sys.executable, str(HERE / "bench_step.py"), *common]
    return [sys.executable, str(HERE / "peers" / "torch_step.py"), "--mode", program, *common]


def run_once(program: str, family: str, shape: str, weights: Path, a: argparse.Namespace) -> Row:
    """Run one program; its last output line is a JSON object."""
    env = dict(os.environ, OMP_NUM_THREADS=str(a.threads))
    argv = command(program, family, shape, weights, a)
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{program} on {shape} {family} ended with {done.returncode}: {' '.join(argv)}")
    row: Row = json.loads(done.stdout.strip().splitlines()[-1])
    print(
        f"  {row['name']:<28} {row['tokens_per_second']:>8.0f} tokens/s  {row['peak_rss_mib']:>6.0f} MiB  "
        f"spread {row['spread']:.0%}",
        flush=True,
    )
    return row


def measure_case(family: str, shape: str, a: argparse.Namespace, folder: Path) -> list[Row]:
    """All programs on one shape: one row each, ours first."""
    weights = folder / f"{family}_{shape}.npz"
    np.savez(weights, **random_weights(parameter_shapes(SHAPES[shape], family)))  # type: ignore[arg-type]
    programs = [*(["ours"] if not a.no_ours else []), *a.peers]
    runs: dict[str, list[Row]] = {p: [] for p in programs}
    for n in range(a.rounds):
        print(f"{family} {shape}, round {n + 1} of {a.rounds}", flush=True)
        for program in programs:
            runs[program].append(run_once(program, family, shape, weights, a))
    rows = []
    for program in programs:
        row = dict(runs[program][0], program=program, family=family, shape=shape)
        for key in ("tokens_per_second", "peak_rss_mib", "spread"):
            row[key] = statistics.median(r[key] for r in runs[program])
        row["best_tokens_per_second"] = max(r["tokens_per_second"] for r in runs[program])
        rows.append(row)
    for row in rows[1:]:
        pairs = zip(rows[0]["losses"], row["losses"], strict=True)
        differences = [abs(x - y) for x, y in pairs]
        row["loss_difference"] = math.nan if any(map(math.isnan, differences)) else max(differences)
    return rows


def measured_peak(threads: int) -> float:
    """fp32 GFLOP/s that `threads` cores reach on register-resident multiply-adds, in a process of its own."""
    code = f"from mudd_core import _core; print(_core.peak_gflops({threads}))"
    env = dict(os.environ, PYTHONPATH=str(HERE.parent / "python"))
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return float(done.stdout)


def heading(a: argparse.Namespace, peak: float) -> str:
    """What a result must carry to be compared with another."""
    levels = [n for n in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16") if n in cpu_flags()]
    return (
        f"{cpu_name()}, {usable_cores()} cores, {a.threads} threads, flags {' '.join(levels)}, "
        f"MUDD_MAX_ISA={os.environ.get('MUDD_MAX_ISA', '-')}, Python {platform.python_version()}, "
        f"commit {commit()}, {time.strftime('%Y-%m-%d')}; fp32; "
        f"measured peak {peak:.0f} GFLOP/s; "
        f"{a.rounds} rounds of {a.steps} steps after {a.warmup}\n"
    )


def table(rows: list[Row], peak: float) -> str:
    """Markdown table: speed, share of peak, memory, and our ratios to each peer."""
    out = [
        "| family | shape (V, L, D, H, F, T, B) | program | ISA | tokens/s | best | share of peak "
        "| peak RSS MiB | tokens/s : ours | RSS : ours | loss difference |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    ours: Row = {}
    for r in rows:
        s = SHAPES[r["shape"]]
        ours = r if r["program"] == "ours" else ours
        flops = s.flops_per_token(r["family"]) * r["tokens_per_second"]
        dims = f"{s.V}, {s.L}, {s.D}, {s.H}, {s.inner(r['family'])}, {s.T}, {s.B}"
        ratios = " | "
        if ours and r is not ours:
            speed = r["tokens_per_second"] / ours["tokens_per_second"]
            ratios = f"{speed:.2f} | {r['peak_rss_mib'] / ours['peak_rss_mib']:.2f}"
        out.append(
            f"| {r['family']} | {s.name}: {dims} | {r['name']} | {r['isa']} | {r['tokens_per_second']:.0f} "
            f"| {r['best_tokens_per_second']:.0f} | {flops / peak / 1e9:.0%} | {r['peak_rss_mib']:.0f} "
            f"| {ratios} | {r.get('loss_difference', 0.0):.1e} |"
        )
    return "\n".join(out) + "\n"


def parse() -> argparse.Namespace:
    """Command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    p.add_argument("--families", nargs="+", choices=FAMILIES, default=["transformer_pp"])
    p.add_argument("--peers", nargs="*", choices=("eager", "compile"), default=["eager"])
    p.add_argument("--no-ours", action="store_true", help="run the peers alone")
    p.add_argument("--threads", type=int, default=usable_cores())
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=8, help="timed steps of a run")
    p.add_argument("--warmup", type=int, default=3, help="steps before the clock starts")
    p.add_argument("--loss-tolerance", type=float, default=2e-3)
    p.add_argument("--out", type=Path, help="append heading and table to this Markdown file")
    return p.parse_args()


def main() -> int:
    """Run the cases, print the table, and fail if the losses disagree."""
    a = parse()
    peak = measured_peak(a.threads)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for family in a.families:
            for shape in a.shapes:
                rows += measure_case(family, shape, a, Path(folder))
    text = heading(a, peak) + "\n" + table(rows, peak)
    print("\n" + text)
    if a.out is not None:
        a.out.parent.mkdir(parents=True, exist_ok=True)
        with a.out.open("a") as f:
            f.write(text + "\n")
    # NaN is no difference of any size: a peer whose losses are not numbers did not take the same steps.
    other = [r for r in rows if not r.get("loss_difference", 0.0) <= a.loss_tolerance]
    for r in other:
        print(
            f"{r['family']} {r['shape']} {r['program']}: losses differ by {r['loss_difference']:.1e}, over "
            f"{a.loss_tolerance:.0e}: not the same computation",
            file=sys.stderr,
        )
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main())
