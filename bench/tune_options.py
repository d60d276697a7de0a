"""The command line of the two programs that bench_tune.py measures: mudd_core, and PEFT on PyTorch."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tune_shapes import TUNE_SHAPES, TuneShape


def shape_of(a: argparse.Namespace) -> TuneShape:
    """Return the model and the batch that the arguments name."""
    shape = TUNE_SHAPES[a.shape]
    return replace(shape, T=a.length or shape.T, B=a.rows or shape.B)


def clock(threads: int) -> Callable[[], float]:
    """Return the clock of the steps.

    It is CPU time with one thread, because other programs then disturb only the caches.
    """
    return time.process_time if threads == 1 else time.perf_counter


def parser(about: str | None, threads: int) -> argparse.ArgumentParser:
    """Return a parser of the options of both programs. threads: the default number."""
    p = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--folder", type=Path, required=True, help="of the base and its adapters")
    p.add_argument("--prepare", action="store_true", help="make what the program reads there, and exit")
    p.add_argument("--shape", choices=TUNE_SHAPES, default="tiny")
    p.add_argument("--length", type=int, default=0, help="tokens of a sequence; 0 = of the shape")
    p.add_argument("--rows", type=int, default=0, help="sequences of a step; 0 = of the shape")
    p.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    p.add_argument("--threads", type=int, default=threads)
    p.add_argument("--steps", type=int, default=5, help="timed steps")
    p.add_argument("--warmup", type=int, default=1, help="steps before the clock starts")
    p.add_argument("--in-turn", action="store_true", help="each step when a line comes in (turns.py)")
    p.add_argument("--counted", type=float, default=1.0, help="fraction of the targets that is used")
    p.add_argument("--save", type=Path, help=".npz for the adapters after the last step")
    return p
