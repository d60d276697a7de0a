"""Print the time of a step with tables of n-grams relative to a step without one.

    python bench/bench_ngrams.py                               # 55M, three orders in four layers
    python bench/bench_ngrams.py --rows=1e4,1e6,4e7 --rounds=20

All models take their steps in turn in one process, on batches of Zipf tokens that differ from step to step. `first` is
the first step, in which most rows of a table are new memory. `faults` is the number of page faults of a later step. CPU
time depends less on other programs than wall time.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from bench_step import default_micro_batch, run_config
from shapes import SHAPES, Shape
from workload import batch_tokens

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

if TYPE_CHECKING:
    from mudd_core.engine.engine import Engine

RATE = 1e-4


@dataclass
class Measured:
    """The steps of a model. rows: of its table; 0: none."""

    rows: int
    engine: Engine
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)

    def step(self, number: int, s: Shape) -> None:
        """Take a step and keep its times."""
        tokens = batch_tokens(s, number).astype("int32")
        batch = {"inputs": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        wall, cpu = time.perf_counter(), time.process_time()
        self.engine.train_step(number, RATE, batch)
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)
        self.faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults)


def model_of(s: Shape, rows: int, orders: str, layers: str) -> Measured:
    """Return a Transformer++ of a shape with a table of `rows` rows of 64 numbers."""
    from mudd_core.engine.engine import Engine
    from mudd_core.engine.model import Model

    config = run_config(s, "transformer_pp", default_micro_batch(s), "fp32", False)
    model = replace(config.model, ngram_rows=rows, ngram_orders=orders, ngram_layers=layers)
    config = replace(config, model=model)
    return Measured(rows, Engine(config, Model(model, seed=1)))


def measure(s: Shape, rows: Sequence[int], orders: str, layers: str, rounds: int) -> list[Measured]:
    """Return the measured steps of a model without a table, and of one for each number of rows."""
    found = [model_of(s, count, orders, layers) for count in (0, *rows)]
    for number in range(1 + rounds):
        for one in found:
            one.step(number, s)
    return found


def line(one: Measured, plain: Measured) -> str:
    """Return a line of the output; ratios are medians over pairs of steps after the first."""
    wall, cpu = (
        median(a / b for a, b in zip(mine[1:], base[1:], strict=True))
        for mine, base in ((one.wall, plain.wall), (one.cpu, plain.cpu))
    )
    return (
        f"rows {one.rows:>11,}  step {median(one.wall[1:]):.3f} s, ratio wall {wall:.3f}, CPU {cpu:.3f}; first "
        f"{one.wall[0]:.3f} s, faults {median(one.faults[1:]):,.0f}"
    )


def main() -> None:
    """Measure and print one line for each number of rows."""
    import mudd_core as mc

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", default="55M", choices=list(SHAPES))
    parser.add_argument("--rows", default="1e4,1e6,1e7", help="rows of the tables, such as 1e4,1e6,4e7")
    parser.add_argument("--orders", default="1,2,3")
    parser.add_argument("--layers", default="0,3,6,9")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    mc.set_num_threads(asked.threads)
    rows = [int(float(count)) for count in asked.rows.split(",")]
    found = measure(SHAPES[asked.shape], rows, asked.orders, asked.layers, asked.rounds)
    for one in found:
        print(line(one, found[0]), flush=True)


if __name__ == "__main__":
    main()
