"""One training run by several processes with DeepSpeed's ZeRO stage 3 on CPUs; prints one JSON object.

    $MUDD_BENCH_DEEPSPEED_PYTHON bench/baselines/deepspeed_zero3.py --shape 9M --ranks 2 --threads 1

Model, AdamW and batch are the same as in torch_step.py; DeepSpeed clips and exchanges gradients in its own way. It runs
in a separate environment (bench/README.md).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch_ranks import MOMENTS, Lengths, Trainer, length_over_ranks, parser_of_ranks, run_ranks
from torch_step import decayed

from workload import BETAS, CLIP, EPS, LR, length


class Zero3(Trainer):
    """DeepSpeed's engine with its defaults, in fp32."""

    def __init__(self, model: nn.Module, a: argparse.Namespace) -> None:
        places = {"RANK": a.rank, "LOCAL_RANK": a.rank, "WORLD_SIZE": a.ranks, "LOCAL_SIZE": a.ranks}
        os.environ |= {name: str(value) for name, value in places.items()}
        with contextlib.redirect_stdout(sys.stderr):  # only the row is printed on standard output
            import deepspeed

            deepspeed.init_distributed("gloo", dist_init_required=False)
            settings: dict[str, Any] = {
                "train_batch_size": a.ranks,
                "train_micro_batch_size_per_gpu": 1,  # read only by DeepSpeed's counters
                "gradient_clipping": CLIP,
                "zero_optimization": {"stage": 3},
                "zero_allow_untested_optimizer": True,
                "wall_clock_breakdown": False,
            }
            optimizer = torch.optim.AdamW(decayed(model), lr=LR, betas=BETAS, eps=EPS, fused=True)
            self.engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
        self.name = f"DeepSpeed {deepspeed.__version__} stage 3"

    def step(self, tokens: Tensor) -> float:
        """Take a step; DeepSpeed averages the gradients over the ranks."""
        loss = self.engine(tokens[:, :-1], tokens[:, 1:])
        self.engine.backward(loss)
        self.engine.step()
        return cast(float, loss.item())

    def lengths(self) -> Lengths:
        """Return the norms over all ranks, from the flat partition of each."""
        zero = self.engine.optimizer
        parts = list(zero.fp32_partitioned_groups_flat)
        state = zero.optimizer.state
        found = {"weights": length(p.detach().numpy() for p in parts)}
        for name, key in MOMENTS:
            found[name] = length(state[p][key].detach().numpy() for p in parts)
        return {name: length_over_ranks(own) for name, own in found.items()}


if __name__ == "__main__":
    run_ranks(parser_of_ranks(__doc__).parse_args(), Zero3)
