"""Compare log-likelihoods of mudd_core and of transformers in lm-evaluation-harness, in turn, at hf's best batch.

    python bench/bench_lm_eval.py --batches 1 4 8 --workloads rolling answers choices letters --steps 3

All programs score the same requests from one folder with random weights; lm_eval_scores.py describes the workloads.
The scores must agree within 1e-4 of their size.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import lm_eval_scores
from mudd_core.cli.race.turns import Program, take_turns
from shapes import SHAPES, baseline_caps, commit, cpu_levels, cpu_name, usable_cores

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]


def command(a: argparse.Namespace, folder: Path, workload: str, program: str, batch: int) -> list[str]:
    """Return the argument list of one run."""
    words = [sys.executable, str(HERE / "lm_eval_scores.py"), "--program", program, "--folder", str(folder)]
    words += ["--shape", a.shape, "--workload", workload, "--batch", str(batch), "--threads", str(a.threads)]
    return [*words, "--steps", str(a.steps), "--in-turn"]


def measure(a: argparse.Namespace, folder: Path, workload: str) -> list[Row]:
    """Return a row for mudd_core and one for each batch of hf."""
    caps = {"OMP_NUM_THREADS": str(a.threads)}
    kinds = [("mudd", 0), *(("hf", batch) for batch in a.batches)]
    started = [
        Program(
            command(a, folder, workload, program, batch),
            {**os.environ, **(baseline_caps() if program == "hf" else {}), **caps},
        )
        for program, batch in kinds
    ]
    rows = take_turns(started, a.steps)
    found = [row for row in rows if row is not None]
    if len(found) < len(rows):
        raise SystemExit(f"[bench_lm_eval] {workload}: {len(rows) - len(found)} programs failed")
    for row in found[1:]:
        pairs = zip(found[0]["scores"], row["scores"], strict=True)
        row["difference"] = max(abs(one - other) / max(1.0, abs(other)) for one, other in pairs)
    return found


def lines(rows: list[Row]) -> list[str]:
    """Return the rows of the table of one workload."""
    best = max(row["tokens_per_second"] for row in rows[1:])
    return [
        f"| {row['workload']} | {row['program']}{' batch ' + str(row['batch']) if row['batch'] else ''} "
        f"| {row['tokens']:,} | {row['tokens_per_second']:.0f} | {row['peak_rss_mib']:.0f} "
        f"| {row['tokens_per_second'] / best:.2f} | {row.get('difference', 0.0):.0e} |"
        for row in rows
    ]


def main() -> int:
    """Measure and print the table; return 1 if the scores disagree."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", choices=tuple(SHAPES), default="55M")
    p.add_argument(
        "--workloads", nargs="+", choices=lm_eval_scores.WORKLOADS, default=[*lm_eval_scores.WORKLOADS]
    )
    p.add_argument("--batches", nargs="+", type=int, default=[1, 2, 4, 8], help="batches of hf")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--folder", type=Path, help="keep the model here, for the next run; default: temporary")
    p.add_argument("--out", type=Path, help="append the table to this Markdown file")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = a.folder or Path(temporary)
        if not (folder / "tokenizer.json").exists():
            folder.mkdir(parents=True, exist_ok=True)
            lm_eval_scores.prepare(folder, SHAPES[a.shape])
        rows = [measure(a, folder, workload) for workload in a.workloads]
    head = [
        f"llama of the {a.shape} shape, T {SHAPES[a.shape].T}, fp32; {cpu_name()}, {usable_cores()} cores, {a.threads} "
        f"threads, flags {' '.join(cpu_levels())}, MUDD_MAX_ISA={os.environ.get('MUDD_MAX_ISA', '-')}, commit "
        f"{commit()}, {time.strftime('%Y-%m-%d')}; median of {a.steps} steps",
        "",
        "| workload | program | tokens | tokens/s | peak RSS MiB | to hf's best batch | difference of scores |",
        "|---|---|---|---|---|---|---|",
    ]
    text = "\n".join([*head, *(line for some in rows for line in lines(some))]) + "\n"
    print(text, flush=True)
    if a.out is not None:
        with a.out.open("a") as f:
            f.write(text + "\n")
    return 1 if any(row.get("difference", 0.0) > 1e-4 for some in rows for row in some) else 0


if __name__ == "__main__":
    sys.exit(main())
