"""Arguments that all baseline programs share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from shapes import SHAPES


def parser(about: str | None, families: Collection[str], threads: int) -> argparse.ArgumentParser:
    """Return a parser of the shared arguments. threads: the default."""
    p = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--family", choices=families, default="transformer_pp")
    p.add_argument("--shape", choices=SHAPES, default="9M")
    p.add_argument("--threads", type=int, default=threads, help="of a process")
    p.add_argument("--steps", type=int, default=20, help="timed steps")
    p.add_argument("--warmup", type=int, default=5, help="steps before the clock starts")
    p.add_argument("--in-turn", action="store_true", help="each step when a line comes in (turns.py)")
    p.add_argument("--weights", type=Path, help=".npz of initial weights with mudd_core's names")
    p.add_argument(
        "--json", action="store_true", help="accepted for symmetry with bench_step.py; always JSON"
    )
    return p
