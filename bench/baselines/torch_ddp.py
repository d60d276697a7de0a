"""One PyTorch training run by several processes (DistributedDataParallel over gloo); prints one JSON object.

    python bench/baselines/torch_ddp.py --shape 9M --ranks 2 --threads 1 --optimizer adamw --bucket-mb 25

Each rank takes its part of the batch of torch_step.py, with the same model, clip and AdamW. Stock DDP at its best on
CPUs: gradients are views of the buckets, the graph is static, micro-batches but the last one do not synchronise. This
process is rank 0 and starts the others. --optimizer zero: ZeroRedundancyOptimizer, whose ranks share the moments.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from program import parser, timing
from torch_step import clip, make

from rank_memory import memory_of
from shapes import FAMILIES, SHAPES, peak_rss_mib
from turns import Ranks, turns
from workload import BETAS, DECAY, EPS, LR, batch_tokens, length


def make_optimizer(model: nn.Module, kind: str) -> torch.optim.Optimizer:
    """AdamW of torch_step.py, whole on every rank or with moments cut over them."""
    values = list(model.parameters())
    groups: list[dict[str, Any]] = [
        {"params": [p for p in values if p.dim() > 1], "weight_decay": DECAY},
        {"params": [p for p in values if p.dim() <= 1], "weight_decay": 0.0},
    ]
    settings: dict[str, Any] = {"lr": LR, "betas": BETAS, "eps": EPS, "fused": True}
    if kind == "zero":
        return ZeroRedundancyOptimizer(
            groups, optimizer_class=torch.optim.AdamW, parameters_as_bucket_view=True, **settings
        )
    return torch.optim.AdamW(groups, **settings)


def state_lengths(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """Lengths of all weights, first and second moments; of moments that are cut, over all ranks."""
    cut = isinstance(optimizer, ZeroRedundancyOptimizer)
    own = (optimizer.optim if cut else optimizer).state
    lengths = {"weights": length(p.detach().numpy() for p in model.parameters())}
    for name, key in (("first_moment", "exp_avg"), ("second_moment", "exp_avg_sq")):
        square = length(own[p][key].numpy() for p in model.parameters() if p in own) ** 2
        parts = [square]
        if cut:
            parts = gathered(square)
        lengths[name] = math.sqrt(sum(parts))
    return lengths


def gathered(value: Any) -> list[Any]:
    """What every rank gives."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def train(a: argparse.Namespace, folder: Path, rest: list[subprocess.Popen[bytes]]) -> NoReturn:
    """Take the steps of this rank, and end; rank 0 reports, after the rest."""
    torch.set_num_threads(a.threads)
    program = memory_of("self")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=a.rank, world_size=a.ranks)
    shape = SHAPES[a.shape]
    s = replace(shape, T=a.seq_len or shape.T, B=a.batch or shape.B)
    model, load = make(s, a.family)
    if a.weights is not None:
        with np.load(a.weights, allow_pickle=False) as z:
            load(model, {k: z[k] for k in z.files})
    run = DistributedDataParallel(
        model, bucket_cap_mb=a.bucket_mb, gradient_as_bucket_view=True, static_graph=a.micro_batches == 1
    )
    optimizer = make_optimizer(model, a.optimizer)
    ranks = Ranks(folder, a.rank, a.ranks)
    own = s.B // a.ranks
    losses, seconds = [], []
    for step in turns(a.warmup + a.steps, a.in_turn, ranks):
        tokens = torch.from_numpy(batch_tokens(s, step)[a.rank * own : (a.rank + 1) * own])
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        parts = tokens.chunk(a.micro_batches)
        for n, part in enumerate(parts):
            with contextlib.nullcontext() if n == len(parts) - 1 else run.no_sync():
                loss = run(part[:, :-1], part[:, 1:]) / len(parts)
                loss.backward()
            total += loss.item()
        clip(model)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
        losses.append(total)
    row = {
        "name": f"PyTorch {torch.__version__} DDP {a.optimizer}, {a.bucket_mb:g} MB",
        **timing(s, seconds, a.warmup),
        "isa": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "losses": [statistics.fmean(one) for one in zip(*gathered(losses), strict=True)],
        "state": state_lengths(model, optimizer),
        "ranks": a.ranks,
        "memory_of_ranks": gathered({"program": program, "now": memory_of("self"), "peak": peak_rss_mib()}),
    }
    code = 0
    if a.rank == 0:
        print(json.dumps(row), flush=True)
        code = max((process.wait() for process in rest), default=0)
        shutil.rmtree(folder)
    # With PyTorch 2.13 the end of a DDP object and a thread of gloo wait for each other now and then.
    os._exit(code)


def parse() -> argparse.Namespace:
    """Command line."""
    p = parser(__doc__, FAMILIES, threads=1)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--rank", type=int, default=0, help="set for the processes that rank 0 starts")
    p.add_argument("--folder", type=Path, help="where the ranks meet; likewise")
    p.add_argument("--optimizer", choices=("adamw", "zero"), default="adamw")
    p.add_argument("--bucket-mb", type=float, default=25)
    p.add_argument("--micro-batches", type=int, default=1, help="of a rank in a step; with no_sync above 1")
    p.add_argument("--seq-len", type=int, help="length T of a sequence in place of the shape's")
    p.add_argument("--batch", type=int, help="sequences in a step of all ranks in place of the shape's")
    return p.parse_args()


def main() -> None:
    """Start the other ranks, train with them, report."""
    a = parse()
    if a.rank:
        train(a, a.folder, [])
    folder = Path(tempfile.mkdtemp())
    rest = [
        subprocess.Popen(
            [sys.executable, *sys.argv, "--rank", str(rank), "--folder", str(folder)],
            stdin=subprocess.DEVNULL,
        )
        for rank in range(1, a.ranks)
    ]
    try:
        train(a, folder, rest)
    finally:
        for process in rest:
            process.kill()
            process.wait()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
