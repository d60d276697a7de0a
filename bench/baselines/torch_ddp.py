"""Time one PyTorch training run of several processes (DistributedDataParallel over gloo); print one JSON object.

    python bench/baselines/torch_ddp.py --shape 9M --ranks 2 --threads 1 --optimizer adamw --bucket-mb 25

Each rank processes its slice of the batch of torch_step.py, with the same model, clip and AdamW. These are the best
settings of stock DDP on CPUs: gradients are views of the buckets, the graph is static, and only the last micro-batch
synchronizes. This process is rank 0 and starts the others. --optimizer zero: ZeroRedundancyOptimizer, which shards the
moments.
"""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch_ranks import MOMENTS, Lengths, Trainer, length_over_ranks, parser_of_ranks, run_ranks
from torch_step import clip, decayed

from workload import BETAS, EPS, LR, length


class Ddp(Trainer):
    """AdamW, replicated on every rank or with sharded moments."""

    def __init__(self, model: nn.Module, a: argparse.Namespace) -> None:
        self.name = f"DDP {a.optimizer}, {a.bucket_mb:g} MB"
        self.model, self.parts, self.cut = model, a.micro_batches, a.optimizer == "zero"
        self.run = DistributedDataParallel(
            model, bucket_cap_mb=a.bucket_mb, gradient_as_bucket_view=True, static_graph=a.micro_batches == 1
        )
        settings: dict[str, Any] = {"lr": LR, "betas": BETAS, "eps": EPS, "fused": True}
        if self.cut:
            self.optimizer: torch.optim.Optimizer = ZeroRedundancyOptimizer(
                decayed(model), optimizer_class=torch.optim.AdamW, parameters_as_bucket_view=True, **settings
            )
        else:
            self.optimizer = torch.optim.AdamW(decayed(model), **settings)

    def step(self, tokens: Tensor) -> float:
        """Take a step; synchronize only in the last micro-batch."""
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        parts = tokens.chunk(self.parts)
        for n, part in enumerate(parts):
            with contextlib.nullcontext() if n == len(parts) - 1 else self.run.no_sync():
                loss = self.run(part[:, :-1], part[:, 1:]) / len(parts)
                loss.backward()
            total += loss.item()
        clip(self.model)
        self.optimizer.step()
        return total

    def lengths(self) -> Lengths:
        """Return the norms, over all ranks if the moments are sharded."""
        own = (
            self.optimizer.optim if isinstance(self.optimizer, ZeroRedundancyOptimizer) else self.optimizer
        ).state
        found = {"weights": length(p.detach().numpy() for p in self.model.parameters())}
        for name, key in MOMENTS:
            found[name] = length(own[p][key].numpy() for p in self.model.parameters() if p in own)
            if self.cut:
                found[name] = length_over_ranks(found[name])
        return found


def parse() -> argparse.Namespace:
    """Parse the command line."""
    p = parser_of_ranks(__doc__)
    p.add_argument("--optimizer", choices=("adamw", "zero"), default="adamw")
    p.add_argument("--bucket-mb", type=float, default=25)
    p.add_argument("--micro-batches", type=int, default=1, help="of a rank in a step; with no_sync above 1")
    return p.parse_args()


if __name__ == "__main__":
    run_ranks(parse(), Ddp)
