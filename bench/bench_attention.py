"""Compare causal attention of mudd_core with PyTorch's scaled_dot_product_attention, in interleaved rounds.

Both read q, k, v as [B, T, H*hd] float32 and return the output and, for backward, three gradients. mudd_core is called
through mc.ops, so its times include the NumPy interface and the allocation of results. FLOPs: 2 T^2 D per sample in
forward (causal, counted once) and twice as many in backward. Each time is the best of all rounds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import mudd_core as mc

# B, H, T, hd
LONG = [(1, 8, 2048, 64), (1, 2, 8192, 64), (1, 1, 32768, 64)]
SHAPES = [(8, 4, 256, 64), (4, 8, 512, 64), (2, 12, 512, 64), (1, 8, 1024, 64), (1, 4, 2048, 64)]


def best(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the seconds of each function's fastest call; the functions take turns in every round."""
    seconds = {name: float("inf") for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


def compare(batch: int, heads: int, length: int, width: int, rounds: int, peak: float) -> dict[str, Any]:
    """Return the GFLOP/s of one row of the table; raise an error if the two outputs differ by more than rounding."""
    rng = np.random.default_rng(0)
    q, k, v, dout = (rng.standard_normal((batch, length, heads * width), dtype=np.float32) for _ in range(4))
    tensors = [torch.tensor(x).requires_grad_() for x in (q, k, v)]

    def split(x: torch.Tensor) -> torch.Tensor:
        return x.view(batch, length, heads, width).transpose(1, 2)

    def theirs() -> torch.Tensor:
        q_, k_, v_ = map(split, tensors)
        o = torch.nn.functional.scaled_dot_product_attention(q_, k_, v_, is_causal=True)
        return o.transpose(1, 2).reshape(batch, length, -1)

    gradient = torch.tensor(dout)
    output = theirs()
    np.testing.assert_allclose(mc.ops.attention(q, k, v, n_head=heads), output.detach().numpy(), atol=2e-5)
    seconds = best(
        {
            "ours": lambda: mc.ops.attention(q, k, v, n_head=heads),
            "torch": theirs,
            # Both run the forward again: mc.ops.attention_backward has no saved state from an earlier call.
            "ours both": lambda: mc.ops.attention_backward(dout, q, k, v, n_head=heads),
            "torch both": lambda: torch.autograd.grad(theirs(), tensors, gradient),
        },
        rounds,
    )
    flops = 2.0 * batch * heads * length**2 * width
    rate = {name: (3 if "both" in name else 1) * flops / s * 1e-9 for name, s in seconds.items()}
    return {"shape": f"{batch}, {heads}, {length}, {width}", "peak_gflops": peak, "gflops": rate}


def line(row: dict[str, Any]) -> str:
    """Return a row of the Markdown table."""
    ours, theirs, ours_both, theirs_both = row["gflops"].values()
    shares = f"{ours / row['peak_gflops']:.0%}, {ours_both / row['peak_gflops']:.0%}"
    return f"| {row['shape']} | {ours:.0f} | {theirs:.0f} | {ours_both:.0f} | {theirs_both:.0f} | {shares} |"


HEAD = (
    "| B, H, T, hd | forward, ours | torch | forward + backward, ours | torch | shares of the limit, ours |\n"
    "|---|---|---|---|---|---|"
)


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--long", action="store_true", help="sequences of 2,048, 8,192 and 32,768 tokens")
    parser.add_argument("--json", action="store_true", help="print one JSON object per shape")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    mc.set_num_threads(options.threads)
    peak = mc._core.peak_gflops(options.threads)
    rows = (compare(*shape, options.rounds, peak) for shape in (LONG if options.long else SHAPES))
    if options.json:
        for row in rows:
            print(json.dumps(row), flush=True)
        return
    print(f"GFLOP/s, {options.threads} threads, {mc.isa()}, limit {peak:.0f}")
    print(HEAD)
    for row in rows:
        print(line(row), flush=True)


if __name__ == "__main__":
    main()
