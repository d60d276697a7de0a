"""Time one PyTorch training run on a bench shape in a separate process; print one JSON object.

    python bench/baselines/torch_step.py --family transformer_pp --shape 9M --mode eager --threads 2 --steps 12

A step is forward, backward, clip to norm 1 (`clip`) and fused AdamW with gradients set to None. This is the best that
stock PyTorch offers on CPUs (SDPA, fused rms_norm and layer_norm, one qkv and one gate-up matmul). Warm-up steps are
not timed. --weights FILE.npz starts from weights with mudd_core's names, so that losses can be compared.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch_transformer
from program import parser

from shapes import FAMILIES, SHAPES, Shape
from turns import turns
from workload import BETAS, CLIP, DECAY, EPS, LR, batch_tokens, length, timing


def make(s: Shape, family: str) -> tuple[nn.Module, Callable[[Any, dict[str, NDArray[Any]]], None]]:
    """Return (model, weight loader) of baselines/torch_<family>.py; Transformer++ and GPT-2 share a module."""
    if family in ("transformer_pp", "gpt2"):
        return torch_transformer.Model(s, family), torch_transformer.load_weights
    page = importlib.import_module(f"torch_{family}")
    return page.Model(s), page.load_weights


def compiled(model: nn.Module, loss_of: Callable[[nn.Module], Tensor], scalar_ends: bool) -> nn.Module:
    """Return torch.compile(model) with its defaults, or without vectorized loop tails if `scalar_ends`.

    Inductor of PyTorch 2.13 (g++ 12) miscompiles masked loop tails of some models on some CPUs: NaN from the first loss
    at AVX2, a corrupted heap at AVX-512. With scalar tails the losses equal the losses of eager mode.
    """
    # This imports the compiler, which only this function needs.
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    torch._inductor.config.cpp.enable_loop_tail_vec = not scalar_ends
    isa = str(pick_vec_isa())
    if not isa.startswith(torch.backends.cpu.get_cpu_capability().lower()):
        # Inductor probes vector instructions with the compiler and falls back to scalar code if the probe times out.
        raise SystemExit(f"[torch_step] compile: vector units '{isa}', not those of eager mode; run it again")
    run = cast(nn.Module, torch.compile(model))
    if not loss_of(run).isnan():
        return run
    torch._dynamo.reset()
    torch._inductor.config.cpp.enable_loop_tail_vec = False
    return cast(nn.Module, torch.compile(model))


def clip(model: nn.Module) -> None:
    """Clip gradients to norm CLIP; the norm is summed row by row.

    This is as fast as torch.nn.utils.clip_grad_norm_, which sums whole tensors in fp32. That norm is wrong by 1e-4 on
    9M and by more on 55M, so that later losses differ by more than the tolerance of one step.
    """
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    rows = [torch.linalg.vector_norm(g.view(-1, g.shape[-1]), dim=1) for g in gradients]
    norm = torch.linalg.vector_norm(torch.cat(rows))
    torch._foreach_mul_(gradients, (CLIP / (norm + 1e-6)).clamp(max=1.0))


def decayed(model: nn.Module) -> list[dict[str, Any]]:
    """Return the parameters in two groups: matrices, which decay, and the others."""
    values = list(model.parameters())
    return [
        {"params": [p for p in values if p.dim() > 1], "weight_decay": DECAY},
        {"params": [p for p in values if p.dim() <= 1], "weight_decay": 0.0},
    ]


def state_lengths(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """Return the norms of all weights, first and second moments, for comparison with mudd_core."""
    values = list(model.parameters())
    state = [optimizer.state[p] for p in values]
    return {
        "weights": length(p.detach().numpy() for p in values),
        "first_moment": length(x["exp_avg"].numpy() for x in state),
        "second_moment": length(x["exp_avg_sq"].numpy() for x in state),
    }


def parse() -> argparse.Namespace:
    """Parse the command line."""
    p = parser(__doc__, FAMILIES, threads=2)
    p.add_argument(
        "--mode",
        choices=("eager", "compile", "double"),
        default="eager",
        help="double: eager in float64, to see what is rounding",
    )
    p.add_argument(
        "--precision", choices=("fp32", "bf16"), default="fp32", help="bf16: autocast around forward"
    )
    p.add_argument("--scalar-ends", action="store_true", help="compile without vectorised ends of loops")
    return p.parse_args()


def main() -> int:
    """Train on fixed random tokens and report."""
    a = parse()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    s = SHAPES[a.shape]
    if a.mode == "double":
        torch.set_default_dtype(torch.float64)
    model, load = make(s, a.family)
    if a.weights is not None:
        with np.load(a.weights, allow_pickle=False) as z:
            load(model, {k: z[k] for k in z.files})
    optimizer = torch.optim.AdamW(decayed(model), lr=LR, betas=BETAS, eps=EPS, fused=True)

    def loss_of(run: nn.Module, tokens: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=a.precision == "bf16"):
            return cast(Tensor, run(tokens[:, :-1], tokens[:, 1:]))

    first = torch.from_numpy(batch_tokens(s, 0))
    run = compiled(model, lambda run: loss_of(run, first), a.scalar_ends) if a.mode == "compile" else model
    losses, seconds = [], []
    for step in turns(a.warmup + a.steps, a.in_turn):
        tokens = torch.from_numpy(batch_tokens(s, step))
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(run, tokens)
        loss.backward()
        clip(model)
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    print(
        json.dumps(
            {
                "name": f"PyTorch {torch.__version__} {a.mode}"
                + (" autocast" if a.precision == "bf16" else ""),
                **timing(s, seconds, a.warmup),
                "isa": torch.backends.cpu.get_cpu_capability(),
                "threads": torch.get_num_threads(),
                "losses": losses,
                "state": state_lengths(model, optimizer),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
