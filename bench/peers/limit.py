"""The fp32 limit of the cores, measured between the steps of others: register-resident multiply-adds, one JSON object.

Taken in turn with whole steps it is the limit of the same minutes: other guests of a machine slow both.
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
    """Measure once a turn."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=20, help="turns that count")
    p.add_argument("--warmup", type=int, default=5, help="turns before them")
    p.add_argument("--in-turn", action="store_true", help="each when a line comes in")
    a = p.parse_args()
    from mudd_core import _core

    found = [_core.peak_gflops(a.threads) for _ in turns(a.warmup + a.steps, a.in_turn)][a.warmup :]
    print(json.dumps({"gflops": statistics.median(found), "lowest": min(found), "highest": max(found)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
