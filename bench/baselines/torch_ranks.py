"""Shared code of the multi-process baselines: start processes, take steps in turn over gloo, report."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from program import parser
from torch_step import make

from rank_memory import memory_of
from shapes import FAMILIES, SHAPES, peak_rss_mib
from turns import Ranks, turns
from workload import batch_tokens, timing

Lengths = dict[str, float]
MOMENTS = (("first_moment", "exp_avg"), ("second_moment", "exp_avg_sq"))


class Trainer(ABC):
    """A model on the ranks of one kind of baseline."""

    name: str  # appended to PyTorch's version in the table row

    @abstractmethod
    def step(self, tokens: Tensor) -> float:
        """Take an optimizer step on this rank's sequences [b, T + 1]; return their mean loss."""

    @abstractmethod
    def lengths(self) -> Lengths:
        """Return the norms of all weights and moments over all ranks."""


def parser_of_ranks(about: str | None) -> argparse.ArgumentParser:
    """Return a parser of the arguments that every multi-process baseline accepts."""
    p = parser(about, FAMILIES, threads=1)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--rank", type=int, default=0, help="set for the processes that rank 0 starts")
    p.add_argument("--folder", type=Path, help="where the ranks meet; likewise")
    p.add_argument("--seq-len", type=int, help="length T of a sequence in place of the shape's")
    p.add_argument("--batch", type=int, help="sequences in a step of all ranks in place of the shape's")
    return p


def gathered(value: Any) -> list[Any]:
    """Return the values of all ranks."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def length_over_ranks(own: float) -> float:
    """Return the norm of a vector that is sharded across ranks. own: the norm of this rank's shard."""
    return math.sqrt(sum(one**2 for one in gathered(own)))


def train(
    a: argparse.Namespace, trainer: type[Trainer], folder: Path, rest: list[subprocess.Popen[bytes]]
) -> NoReturn:
    """Run the steps of this rank and exit. Rank 0 waits for the others and reports."""
    torch.set_num_threads(a.threads)
    program = memory_of("self")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=a.rank, world_size=a.ranks)
    shape = SHAPES[a.shape]
    s = replace(shape, T=a.seq_len or shape.T, B=a.batch or shape.B)
    model, load = make(s, a.family)
    if a.weights is not None:
        with np.load(a.weights, allow_pickle=False) as z:
            load(model, {k: z[k] for k in z.files})
    run = trainer(model, a)
    ranks = Ranks(folder, a.rank, a.ranks)
    own = s.B // a.ranks
    losses, seconds = [], []
    for step in turns(a.warmup + a.steps, a.in_turn, ranks):
        tokens = torch.from_numpy(batch_tokens(s, step)[a.rank * own : (a.rank + 1) * own])
        start = time.perf_counter()
        losses.append(run.step(tokens))
        seconds.append(time.perf_counter() - start)
    row = {
        "name": f"PyTorch {torch.__version__} {run.name}",
        **timing(s, seconds, a.warmup),
        "isa": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "losses": [statistics.fmean(one) for one in zip(*gathered(losses), strict=True)],
        "state": run.lengths(),
        "ranks": a.ranks,
        "memory_of_ranks": gathered({"program": program, "now": memory_of("self"), "peak": peak_rss_mib()}),
    }
    code = 0
    if a.rank == 0:
        print(json.dumps(row), flush=True)
        code = max((process.wait() for process in rest), default=0)
        shutil.rmtree(folder)
    # With PyTorch 2.13 the destructor of DDP and a thread of gloo sometimes deadlock.
    os._exit(code)


def run_ranks(a: argparse.Namespace, trainer: type[Trainer]) -> None:
    """Start the other ranks, train with them, report."""
    if a.rank:
        train(a, trainer, a.folder, [])
    folder = Path(tempfile.mkdtemp())
    rest = [
        subprocess.Popen(
            [sys.executable, *sys.argv, "--rank", str(rank), "--folder", str(folder)],
            stdin=subprocess.DEVNULL,
        )
        for rank in range(1, a.ranks)
    ]
    try:
        train(a, trainer, folder, rest)
    finally:
        for process in rest:
            process.kill()
            process.wait()
        shutil.rmtree(folder)
