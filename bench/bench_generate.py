"""Measure the generation of one sequence: tokens/s compared with the limit of reading all weights once per token.

    python bench/bench_generate.py --shapes 9M 55M 162M --threads 2 --rounds 5

Every token reads all weights that enter matmuls (packed, fp32) and the KV cache up to its position. The limit is the
read bandwidth of the same threads, measured in the same process before and after each round, divided by those bytes.
The 9M shape fits into the L3 cache, so its percentage may exceed 100. The prompt has 64 tokens, then 256 are generated
greedily; prefill produces the first, and the other 255 are timed. Speeds and percentages are medians over rounds,
because a virtual machine may move to cores with twice the bandwidth between two rounds.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench_step import run_config
from shapes import FAMILIES, SHAPES, Shape, commit, cpu_name, peak_rss_mib, usable_cores
from workload import batch_tokens, parameter_shapes, random_weights

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))


def make_model(s: Shape, family: str, length: int) -> Any:
    """Return the bench model for up to `length` tokens."""
    from mudd_core.engine.model import Model

    longer = dataclasses.replace(s, T=length)
    model = Model(run_config(longer, family, 0).model, initialize=False)
    values = random_weights(parameter_shapes(longer, family))
    for name in list(values):
        model.set_parameter(name, values.pop(name))
    return model


def bytes_per_token(s: Shape, family: str, cached: float, size: int) -> float:
    """Return the bytes that a token reads: the matmul weights, `size` bytes each, and `cached` fp32 keys and values."""
    return size * s.matmul_weights(family) + cached * 2 * s.L * s.D * 4


def measure(s: Shape, family: str, a: argparse.Namespace) -> dict[str, Any]:
    """Measure bandwidth and generation in turn; return medians over rounds."""
    import mudd_core as mc

    mc.set_num_threads(a.threads)
    model = make_model(s, family, a.prompt + a.tokens)
    prompt = batch_tokens(s, 0)[0, : a.prompt].astype(np.int32)
    read = bytes_per_token(s, family, a.prompt + a.tokens / 2, 4)
    seconds, prefill, bandwidth, shares = [], [], [], []
    before = 0.0
    for n in range(a.rounds + 1):
        start = time.perf_counter()
        written = model.generate(prompt, max_tokens=a.tokens, temperature=0.0)
        next(written)
        first = time.perf_counter()
        count = sum(1 for _ in written)
        token = (time.perf_counter() - first) / count
        after = mc._core.read_gbps(a.threads)
        if n > 0:  # the first call plans the graphs
            seconds.append(token)
            prefill.append(a.prompt / (first - start))
            bandwidth.append((before + after) / 2)
            shares.append(read / token / (1e9 * bandwidth[-1]))
        before = after
    return {
        "family": family,
        "shape": s.name,
        "tokens_per_second": 1 / statistics.median(seconds),
        "prefill_tokens_per_second": statistics.median(prefill),
        "mb_per_token": read / 1e6,
        "read_gbps": statistics.median(bandwidth),
        "share": statistics.median(shares),
        "isa": str(mc.isa()),
        "peak_rss_mib": peak_rss_mib(),
    }


def table(rows: list[dict[str, Any]], a: argparse.Namespace) -> str:
    """Return the heading and the Markdown table."""
    out = [
        f"{cpu_name()}, {usable_cores()} cores, {a.threads} threads, {rows[0]['isa']}, commit {commit()}, "
        f"{time.strftime('%Y-%m-%d')}; fp32; prompt {a.prompt}, {a.tokens} tokens, one sequence; {a.rounds} rounds\n",
        "| family | shape | tokens/s | MB read a token | read bandwidth GB/s | share | prefill tokens/s |",
        "|---|---|---|---|---|---|---|",
    ]
    out += [
        f"| {r['family']} | {r['shape']} | {r['tokens_per_second']:.1f} | {r['mb_per_token']:.0f} "
        f"| {r['read_gbps']:.1f} | {r['share']:.0%} | {r['prefill_tokens_per_second']:.0f} |"
        for r in rows
    ]
    return "\n".join(out) + "\n"


def parse() -> argparse.Namespace:
    """Parse the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--families", nargs="+", choices=FAMILIES, default=["transformer_pp"])
    p.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    p.add_argument("--threads", type=int, default=usable_cores())
    p.add_argument("--prompt", type=int, default=64)
    p.add_argument("--tokens", type=int, default=256)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--json", action="store_true", help="print one JSON object per shape")
    p.add_argument("--out", type=Path, help="append heading and table to this Markdown file")
    return p.parse_args()


def main() -> int:
    """Measure and print."""
    a = parse()
    rows = [measure(SHAPES[shape], family, a) for family in a.families for shape in a.shapes]
    if a.json:
        for row in rows:
            print(json.dumps(row))
        return 0
    text = table(rows, a)
    print(text)
    if a.out is not None:
        a.out.parent.mkdir(parents=True, exist_ok=True)
        with a.out.open("a") as f:
            f.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
