"""Measure the peak of the cores (multiply-adds in registers) between the steps of other programs; print one JSON
object.

gflops: with fp32 operands; unit_gflops: with bf16 operands, if --precision bf16.

The measurements alternate with whole steps, because other guests of the machine slow both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from turns import turns

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))


def main() -> int:
    """Measure once per turn and print the result."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=20, help="turns that count")
    p.add_argument("--warmup", type=int, default=5, help="turns before them")
    p.add_argument("--in-turn", action="store_true", help="each when a line comes in")
    p.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    a = p.parse_args()
    from mudd_core import _core

    rates = {"gflops": _core.peak_gflops}
    if a.precision == "bf16":
        rates["unit_gflops"] = _core.bf16_peak_gflops
    found: dict[str, list[float]] = {name: [] for name in rates}
    for _ in turns(a.warmup + a.steps, a.in_turn):
        for name, rate in rates.items():
            found[name].append(rate(a.threads))
    print(json.dumps({name: statistics.median(values[a.warmup :]) for name, values in found.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
