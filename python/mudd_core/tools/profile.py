"""Where the time of a training step goes: every node timed, sums by op, a trace for Perfetto or chrome://tracing."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Key = Callable[["Timing"], str]


@dataclass(frozen=True)
class Timing:
    """One node and phase: seconds a step; FLOPs and bytes (its tensors once) a step; the last call, steady clock."""

    part: str  # "blocks.3.attn.q"
    op: str  # "linear"
    phase: str  # forward or backward
    seconds: float
    flops: float
    bytes: float
    begin: float
    end: float


@dataclass(frozen=True)
class Profile:
    """Timings of one step in running order; seconds: of the whole step, so that the rest is clip and optimizer."""

    timings: list[Timing]
    seconds: float
    tokens: int

    @property
    def rest(self) -> float:
        """Seconds outside the nodes: the batch, the gradient's norm, the optimizer with repacking."""
        return self.seconds - sum(t.seconds for t in self.timings)


def profile(engine: Any, *, steps: int = 5, warmup: int = 2) -> Profile:
    """Times `steps` updates of an engine on random tokens at learning rate 0, after `warmup` untimed ones."""
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
    for label, phase, calls, total, first, last, flops, size in executor.profile_table():
        part, _, op = label.rpartition(":")
        runs = calls / steps
        timings.append(
            Timing(part, op or label, phase, total / steps, flops * runs, size * runs, first, last)
        )
    executor.profile(False)
    return Profile(timings, seconds, train.batch_size * train.seq_len)


def by_op(timing: Timing) -> str:
    """Rows of the table: op and phase."""
    return f"{timing.op} {timing.phase}"


def by_part(timing: Timing) -> str:
    """Rows of the table: the place in the model, all layers together."""
    names = (piece for piece in timing.part.split(".") if not piece.isdecimal())
    return f"{'.'.join(names)}:{timing.op} {timing.phase}"


def table(found: Profile, peak_flops: float, key: Key = by_op) -> str:
    """Rows by falling time: milliseconds a step, share, GFLOP/s and share of the peak, GB/s."""
    sums: dict[str, list[float]] = {}
    for timing in found.timings:
        row = sums.setdefault(key(timing), [0.0, 0.0, 0.0])
        for i, amount in enumerate((timing.seconds, timing.flops, timing.bytes)):
            row[i] += amount
    sums["clip, optimizer, batch"] = [found.rest, 0.0, 0.0]
    width = max(len(name) for name in sums)
    lines = [f"{'':<{width}}  {'ms':>9}  {'share':>6}  {'GFLOP/s':>8}  {'peak':>5}  {'GB/s':>6}"]
    for name, (seconds, flops, size) in sorted(sums.items(), key=lambda item: -item[1][0]):
        rate = flops / seconds if seconds > 0 else 0.0
        speed = f"{rate / 1e9:>8.1f}  {100 * rate / peak_flops:>4.0f}%" if flops else f"{'':>8}  {'':>5}"
        memory = f"{size / seconds / 1e9:>6.1f}" if size and seconds > 0 else f"{'':>6}"
        lines.append(
            f"{name:<{width}}  {1e3 * seconds:>9.3f}  {100 * seconds / found.seconds:>5.1f}%  {speed}  {memory}"
        )
    total = sum(timing.flops for timing in found.timings)
    rate = total / found.seconds
    lines.append(
        f"{'whole step':<{width}}  {1e3 * found.seconds:>9.3f}  {'100%':>6}  {rate / 1e9:>8.1f}  "
        f"{100 * rate / peak_flops:>4.0f}%  {'':>6}  {found.tokens / found.seconds:,.0f} tokens/s"
    )
    return "\n".join(line.rstrip() for line in lines)


def write_trace(found: Profile, path: Path) -> None:
    """The last step as a Chrome trace, gzipped: open it in ui.perfetto.dev (local files stay local)."""
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
            "args": {"GFLOP": t.flops / 1e9, "MB": t.bytes / 1e6},
        }
        for t in found.timings
        if t.end > t.begin
    ]
    names = [
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": tid, "args": {"name": phase}}
        for tid, phase in ((1, "forward"), (2, "backward"))
    ]
    text = json.dumps({"traceEvents": [*names, *events], "displayTimeUnit": "ms"})
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
