"""Compare forward and backward of the planned executor with the immediate one; both have the same bits.

    python bench/bench_executors.py --shapes 9M --rounds 7 --out bench/results/executors.md

One process calls `loss_and_gradients` and `loss_and_gradients_immediate` in turn on one batch of the bench shape and
reports the shortest time of each. The immediate executor creates every node, result and gradient in each call, as a
user who calls mc.ops does. No optimizer runs. The program fails if a loss or a gradient differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench_step import make_engine
from shapes import FAMILIES, SHAPES, Shape, commit, cpu_name, usable_cores
from workload import batch_tokens

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

Row = dict[str, Any]
SHARDS = 4


def measure(s: Shape, family: str, a: argparse.Namespace) -> Row:
    """Return the seconds of the fastest call of each executor."""
    import mudd_core as mc

    mc.set_num_threads(a.threads)
    model = make_engine(s, family, 0, None, a.precision).model
    tokens = batch_tokens(s, 0)[: a.batch].astype(np.int32)
    batch = {"inputs": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}
    calls = {"planned": model.loss_and_gradients, "immediate": model.loss_and_gradients_immediate}
    # plans the graphs, packs the weights and touches the memory
    results = [call(batch, shards=SHARDS) for call in calls.values()]
    if not equal(*results):
        raise SystemExit(f"[bench_executors] {family} {s.name}: the executors give different bits")
    seconds = dict.fromkeys(calls, float("inf"))
    for _ in range(a.rounds):
        for name, call in calls.items():
            begin = time.perf_counter()
            call(batch, shards=SHARDS)
            seconds[name] = min(seconds[name], time.perf_counter() - begin)
    return {"family": family, "shape": s.name, "tokens": batch["inputs"].size, "isa": mc.isa(), **seconds}


def equal(planned: Any, immediate: Any) -> bool:
    """Return True if loss and gradients are equal bit for bit; the tape has no gradient of a parameter that it never
    read.
    """
    return planned[0] == immediate[0] and all(
        np.array_equal(planned[1][name], gradient) for name, gradient in immediate[1].items()
    )


def table(rows: list[Row], a: argparse.Namespace) -> str:
    """Return the page in Markdown."""
    lines = [
        f"# Planned and immediate executor: {cpu_name()}, {a.threads} threads, {a.precision}",
        "",
        f"{time.strftime('%Y-%m-%d')}, commit {commit()}.",
        "",
        "Forward and backward of one batch, least time of "
        f"{a.rounds} rounds in turn; equal bits. Written by `python bench/bench_executors.py`.",
        "",
        "| family | shape | tokens | ISA | planned, ms | immediate, ms | immediate / planned |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r['family']} | {r['shape']} | {r['tokens']} | {r['isa']} | {1e3 * r['planned']:.1f} "
            f"| {1e3 * r['immediate']:.1f} | {r['immediate'] / r['planned']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def parse() -> argparse.Namespace:
    """Parse the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    p.add_argument("--shapes", nargs="+", choices=SHAPES, default=["9M"])
    p.add_argument("--threads", type=int, default=usable_cores())
    p.add_argument("--batch", type=int, default=4, help=f"sequences of the batch, a multiple of {SHARDS}")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    p.add_argument("--out", type=Path, help="write the page here too")
    return p.parse_args()


def main() -> int:
    """Measure and print."""
    a = parse()
    rows = [measure(SHAPES[shape], family, a) for shape in a.shapes for family in a.families]
    text = table(rows, a)
    print(text)
    if a.out:
        a.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
