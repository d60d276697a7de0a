"""Print the time of a recorded step relative to a plain step, in fp32 and bf16.

    python bench/bench_record.py

Both steps take turns in one process. The ratio is the median of --rounds pairs. `first` is the ratio of the first
recorded step, which also gets its memory from the system. CPU time depends less on other programs than wall time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench_step import default_micro_batch, make_engine
from shapes import SHAPES, Shape
from workload import batch_tokens

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

CLOCKS = {"wall": time.perf_counter, "CPU": time.process_time}
RATE = 1e-4


def measure(s: Shape, precision: str, rounds: int) -> dict[str, tuple[float, list[float]]]:
    """Return by clock: the median seconds of a plain step, and the ratio of a recorded step to it in each round."""
    from mudd_core.fingerprint import record_step

    engine = make_engine(s, "transformer_pp", default_micro_batch(s), None, precision)
    tokens = batch_tokens(s, 0).astype("int32")
    batch = {"inputs": tokens[:, :-1].copy(), "targets": tokens[:, 1:].copy()}
    for step in range(2):  # plans the graphs, packs the weights and touches the memory
        engine.train_step(step, RATE, batch)
    times = []
    for step in range(2, 2 + 2 * rounds, 2):
        plain = _seconds(lambda step=step: engine.train_step(step, RATE, batch))
        recorded = _seconds(lambda step=step: record_step(engine, step + 1, RATE, batch))
        times.append((plain, recorded))
    return {
        clock: (
            median(plain[clock] for plain, _ in times),
            [recorded[clock] / plain[clock] for plain, recorded in times],
        )
        for clock in CLOCKS
    }


def _seconds(call: Callable[[], object]) -> dict[str, float]:
    """Return the seconds of a call by clock."""
    begin = {name: clock() for name, clock in CLOCKS.items()}
    call()
    return {name: clock() - begin[name] for name, clock in CLOCKS.items()}


def line(precision: str, clock: str, seconds: float, ratios: list[float]) -> str:
    """Return a line of the output."""
    return (
        f"{precision}  {clock:4}  step {seconds:.3f} s  record / step: median {median(ratios):.3f}, first "
        f"{ratios[0]:.3f}, largest {max(ratios):.3f}"
    )


def main() -> None:
    """Measure and print one line for each precision and clock."""
    import mudd_core as mc

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", default="55M", choices=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    mc.set_num_threads(asked.threads)
    for precision in ("fp32", "bf16"):
        for clock, found in measure(SHAPES[asked.shape], precision, asked.rounds).items():
            print(line(precision, clock, *found), flush=True)


if __name__ == "__main__":
    main()
