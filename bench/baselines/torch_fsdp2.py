"""Time one PyTorch training run of several processes (FSDP2 over gloo); print one JSON object.

    python bench/baselines/torch_fsdp2.py --shape 9M --ranks 2 --threads 1

fully_shard is applied to each block and to the root over init_device_mesh("cpu", (ranks,)). It shards weights,
gradients and moments across ranks, as mesh.zero=3 does. Model, clip, AdamW and batch are the same as in torch_step.py.
"""

from __future__ import annotations

import argparse
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch_ranks import MOMENTS, Lengths, Trainer, length_over_ranks, parser_of_ranks, run_ranks
from torch_step import decayed

from workload import BETAS, CLIP, EPS, LR, length


def local(value: Any) -> Tensor:
    """Return this rank's shard of a sharded value."""
    return cast(DTensor, value).to_local().detach()


class Fsdp2(Trainer):
    """A model sharded by blocks; the root has the remaining weights."""

    name = "FSDP2"

    def __init__(self, model: nn.Module, a: argparse.Namespace) -> None:
        mesh = init_device_mesh("cpu", (a.ranks,))
        for block in cast(nn.ModuleList, model.blocks):
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        self.model = model
        self.optimizer = torch.optim.AdamW(decayed(model), lr=LR, betas=BETAS, eps=EPS, fused=True)

    def step(self, tokens: Tensor) -> float:
        """Take a step; FSDP averages the gradients over the ranks."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        gradients = [local(p.grad) for p in self.model.parameters()]
        rows = [torch.linalg.vector_norm(g.view(-1, g.shape[-1]), dim=1) for g in gradients if g.numel()]
        square = (
            torch.linalg.vector_norm(torch.cat(rows)).double() ** 2
        )  # the clip of torch_step.py, on shards
        dist.all_reduce(square)
        scale = (CLIP / (square.sqrt() + 1e-6)).clamp(max=1.0).float()
        torch._foreach_mul_(gradients, scale)
        self.optimizer.step()
        return cast(float, loss.item())

    def lengths(self) -> Lengths:
        """Return the norms over all ranks."""
        values = list(self.model.parameters())
        found = {"weights": length(local(p).numpy() for p in values)}
        for name, key in MOMENTS:
            found[name] = length(local(self.optimizer.state[p][key]).numpy() for p in values)
        return {name: length_over_ranks(own) for name, own in found.items()}


if __name__ == "__main__":
    run_ranks(parser_of_ranks(__doc__).parse_args(), Fsdp2)
