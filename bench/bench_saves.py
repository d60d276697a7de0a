"""Compare the time that a save takes from a run: asynchronous saves and ordinary ones, in turn in one process.

    python bench/bench_saves.py --shape 55M --saves 20

Two runs take turns of three updates, in a random order: one has ordinary saves, one train.save_async. A save starts at
the end of the first update of a turn. It costs the seconds of the first two updates minus twice the median of the third
updates. The files are in `--folder`, whose disk is named.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench_step import default_micro_batch, run_config
from shapes import SHAPES, commit, cpu_levels, cpu_name, usable_cores

KINDS = {"ordinary": False, "asynchronous": True}
UPDATES = 3  # of a turn


def disk_of(folder: Path) -> str:
    """Return the device and the type of the file system of a folder."""
    folder = folder.resolve()
    mounts = [line.split()[:3] for line in Path("/proc/mounts").read_text().splitlines()]
    found = max((m for m in mounts if folder.is_relative_to(m[1])), key=lambda m: len(m[1]))
    return f"{found[0]} ({found[2]})"


def trainer(a: argparse.Namespace, kind: str, folder: Path, text: Path) -> Any:
    """Return a Trainer of the shape whose saves are of a kind."""
    import mudd_core as mc

    shape = SHAPES[a.shape]
    config = run_config(shape, "transformer_pp", default_micro_batch(shape))
    train = {
        "steps": UPDATES * (a.saves + 3),
        "save_every": UPDATES,
        "keep_last": 1,
        "save_async": KINDS[kind],
    }
    data = {"path": str(text), "tokenizer": "bytes", "cache_dir": str(folder / "cache")}
    return mc.Trainer(config.replace({"train": train, "data": data}), folder / kind)


def turn(steps: Iterator[Any]) -> list[float]:
    """Return the seconds of each update of a turn; a save starts at the end of the first one."""
    seconds = []
    for _ in range(UPDATES):
        begin = time.perf_counter()
        next(steps)
        seconds.append(time.perf_counter() - begin)
    return seconds


def measure(a: argparse.Namespace, folder: Path) -> dict[str, list[list[float]]]:
    """Return the turns by kind, without the first one, in which the files are new."""
    text = folder / "text.txt"
    text.write_bytes(bytes(np.random.default_rng(0).integers(97, 123, 2_000_000, np.uint8)))
    runs = {kind: trainer(a, kind, folder, text) for kind in KINDS}
    steps = {kind: iter(run) for kind, run in runs.items()}
    turns: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    for of_kind in steps.values():
        for _ in range(UPDATES - 1):
            next(of_kind)
    random = np.random.default_rng(1)
    for _ in range(a.saves + 1):
        for kind in random.permutation(list(KINDS)):
            os.sync()  # no bytes of the other run are written during this turn
            turns[kind].append(turn(steps[kind]))
    for run in runs.values():
        run.close()
    return {kind: of_kind[1:] for kind, of_kind in turns.items()}


def lost_seconds(turns: list[list[float]]) -> list[float]:
    """Return the seconds that each save took from its run."""
    update = statistics.median(one[-1] for one in turns)
    return [sum(one[:-1]) - (UPDATES - 1) * update for one in turns]


def report(a: argparse.Namespace, turns: dict[str, list[list[float]]], disk: str) -> str:
    """Return the table of a measurement."""
    lost = {kind: lost_seconds(of_kind) for kind, of_kind in turns.items()}
    ordinary = statistics.median(lost["ordinary"])
    rows = [
        f"| {kind} | {statistics.median(one[-1] for one in turns[kind]):.2f} | {statistics.median(values):.3f} "
        f"| {min(values):.3f} to {max(values):.3f} | {statistics.median(values) / ordinary:.2f} |"
        for kind, values in lost.items()
    ]
    machine = f"{cpu_name()}, {usable_cores()} cores, flags {' '.join(cpu_levels())}, commit {commit()}"
    table = ["| save | s an update | s lost, median | all | of ordinary |", "|---|---|---|---|---|", *rows]
    return "\n".join([f"{a.shape}, {a.saves} saves; disk {disk}; {machine}", "", *table])


def main() -> int:
    """Run the command; return the exit code."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", choices=tuple(SHAPES), default="55M")
    p.add_argument("--saves", type=int, default=20)
    p.add_argument("--folder", help="of the runs; default a temporary one")
    a = p.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
    with tempfile.TemporaryDirectory(dir=a.folder) as folder:
        print(report(a, measure(a, Path(folder)), disk_of(Path(folder))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
