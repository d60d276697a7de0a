"""Profile a training step: the time of every node, sums by op, and a trace for Perfetto or chrome://tracing."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mudd_core import _core
from mudd_core.base.errors import SaveError
from mudd_core.base.regular_files import write_file
from mudd_core.engine.flops import peak_flops

if TYPE_CHECKING:
    from mudd_core.engine.engine import Engine

Key = Callable[["Timing"], str]


@dataclass(frozen=True)
class Timing:
    """The timing of one node in one phase: seconds, FLOPs and bytes per step, and the last call on the steady clock.

    The bytes count each tensor of the node once. least: seconds per step if every call were as fast as the fastest one,
    which other work on the machine hardly affects.
    """

    part: str  # "blocks.3.attn.q"
    op: str  # "linear"
    phase: str  # forward, remake or backward
    seconds: float
    flops: float
    bytes: float
    begin: float
    end: float
    least: float


@dataclass(frozen=True)
class Profile:
    """The timings of one step in execution order. seconds: the time of the whole step, with clipping and optimizer."""

    timings: list[Timing]
    seconds: float
    tokens: int

    @property
    def rest(self) -> float:
        """Return the seconds outside the nodes: the batch, the gradient norm, and the optimizer with repacking."""
        return self.seconds - sum(t.seconds for t in self.timings)


@dataclass(frozen=True)
class Limits:
    """The measured limits of the machine: multiply-adds in registers in FLOP/s, reads from memory in bytes/s."""

    flops: float
    bytes: float

    def seconds(self, timing: Timing) -> float:
        """Return the roofline time: the larger of the time for the FLOPs and the time to read each tensor once."""
        return max(timing.flops / self.flops, timing.bytes / self.bytes)

    def best_of(self, again: Limits, found: Profile) -> Limits:
        """Return the highest of two measurements and the rates that nodes reached.

        Other work may slow a single measurement.
        """
        reached = [t.flops / t.seconds for t in found.timings if t.seconds > 0]
        return Limits(max(self.flops, again.flops, *reached), max(self.bytes, again.bytes))


def measured_limits(precision: str) -> Limits:
    """Measure this machine with the instructions of the precision; this needs about 0.25 s and 512 MiB."""
    return Limits(peak_flops(precision), 1e9 * _core.read_gbps(_core.num_threads()))


def profile(engine: Engine, *, steps: int = 5, warmup: int = 2) -> Profile:
    """Time `steps` updates of an engine on random tokens at learning rate 0, after `warmup` untimed updates."""
    train, vocab = engine.config.train, engine.model.config.vocab_size
    ids = np.random.default_rng(0).integers(0, vocab, (train.batch_size, train.seq_len + 1)).astype(np.int32)
    batch = {"inputs": np.ascontiguousarray(ids[:, :-1]), "targets": np.ascontiguousarray(ids[:, 1:])}
    for step in range(warmup):
        engine.train_step(step, 0.0, batch)
    executor = engine.executor
    executor.profile(True)
    begin = time.perf_counter()
    for step in range(steps):
        engine.train_step(step, 0.0, batch)
    seconds = (time.perf_counter() - begin) / steps
    timings = []
    for label, phase, calls, total, least, first, last, flops, size in executor.profile_table():
        part, _, op = label.rpartition(":")
        runs = calls / steps
        timings.append(
            Timing(
                part, op or label, phase, total / steps, flops * runs, size * runs, first, last, least * runs
            )
        )
    executor.profile(False)
    return Profile(timings, seconds, train.batch_size * train.seq_len)


def by_op(timing: Timing) -> str:
    """Return the table row of a timing: its op and phase."""
    return f"{timing.op} {timing.phase}"


def by_part(timing: Timing) -> str:
    """Return the table row of a timing: its place in the model, for all layers together."""
    names = (piece for piece in timing.part.split(".") if not piece.isdecimal())
    return f"{'.'.join(names)}:{timing.op} {timing.phase}"


def table(found: Profile, limits: Limits, key: Key = by_op) -> str:
    """Return rows in order of falling time: ms, GFLOP, GB per step; fraction, rates, percentages of peak and roofline.

    least: ms per step if every call were as fast as the fastest one; for the whole step, without optimizer and batch.
    roof: roofline time over measured time, summed over nodes; above 100 % if tensors were still in a cache.
    """
    sums: dict[str, list[float]] = {}
    for timing in found.timings:
        row = sums.setdefault(key(timing), [0.0] * 5)
        for i, amount in enumerate(
            (timing.seconds, timing.flops, timing.bytes, limits.seconds(timing), timing.least)
        ):
            row[i] += amount
    sums["clip, optimizer, batch"] = [found.rest, 0.0, 0.0, 0.0, 0.0]
    width = max(len(name) for name in sums)
    lines = [
        f"{'':<{width}}  {'ms':>9}  {'least':>9}  {'share':>6}  {'GFLOP':>8}  {'GFLOP/s':>8}  {'peak':>5}"
        f"  {'GB':>7}  {'GB/s':>6}  {'roof':>5}"
    ]
    whole = [found.seconds, *(sum(row[i] for row in sums.values()) for i in (1, 2, 3, 4))]
    rows = sorted(sums.items(), key=lambda item: -item[1][0])
    for name, row in [*rows, ("whole step", whole)]:
        lines.append(f"{name:<{width}}  {_cells(row, found.seconds, limits)}")
    lines[-1] += f"  {found.tokens / found.seconds:,.0f} tokens/s"
    return "\n".join(line.rstrip() for line in lines)


def _cells(row: list[float], whole: float, limits: Limits) -> str:
    seconds, flops, size, bound, least = row
    per_second = 1 / seconds if seconds > 0 else 0.0
    rate = flops * per_second
    work = f"{flops / 1e9:>8.3f}  {rate / 1e9:>8.1f}  {100 * rate / limits.flops:>4.0f}%"
    traffic = f"{size / 1e9:>7.3f}  {size * per_second / 1e9:>6.1f}  {100 * bound * per_second:>4.0f}%"
    quiet = f"{1e3 * least:>9.3f}" if least else f"{'':>9}"
    share = f"{1e3 * seconds:>9.3f}  {quiet}  {100 * seconds / whole:>5.1f}%"
    return f"{share}  {work if flops else '':<25}  {traffic if size else ''}"


def write_trace(found: Profile, limits: Limits, path: Path) -> None:
    """Write the last step as a gzipped Chrome trace. Open it in ui.perfetto.dev, which uploads nothing.

    Raise SaveError if the file cannot be written.
    """
    start = min((t.begin for t in found.timings), default=0.0)
    events = [
        {
            "name": f"{t.part}:{t.op}" if t.part else t.op,
            "cat": t.phase,
            "ph": "X",
            "pid": 1,
            "tid": 1 if t.phase == "forward" else 2,
            "ts": 1e6 * (t.begin - start),
            "dur": 1e6 * (t.end - t.begin),
            "args": {
                "GFLOP": t.flops / 1e9,
                "MB": t.bytes / 1e6,
                "share of roofline": limits.seconds(t) / (t.end - t.begin),
            },
        }
        for t in found.timings
        if t.end > t.begin
    ]
    names = [
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": tid, "args": {"name": phase}}
        for tid, phase in ((1, "forward"), (2, "backward"))
    ]
    text = json.dumps({"traceEvents": [*names, *events], "displayTimeUnit": "ms"})
    try:
        write_file(path, gzip.compress(text.encode(), mtime=0))
    except SaveError as error:
        raise SaveError(f"[profile] --trace: {error}") from error
