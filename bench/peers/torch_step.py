"""One PyTorch training run on a bench shape, in a process of its own; prints one JSON object.

    python bench/peers/torch_step.py --family transformer_pp --shape 9M --mode eager --threads 2 --steps 12

A step is forward, backward, clip to norm 1 (`clip`), fused AdamW with gradients set to None: the best a careful user
gets from stock PyTorch on CPUs (SDPA, fused rms_norm and layer_norm, one qkv and one gate-up product).
Warm-up steps are not timed. --weights FILE.npz starts from weights with mudd_core's names, so that losses can
be compared.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch._inductor.cpu_vec_isa import pick_vec_isa

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from shapes import FAMILIES, SHAPES, Shape, peak_rss_mib
from turns import turns
from workload import BETAS, CLIP, DECAY, EPS, LR, batch_tokens, length, spread


class Block(nn.Module):
    """Pre-norm block of either family: x [B, T, D] -> [B, T, D]."""

    def __init__(self, s: Shape, family: str) -> None:
        super().__init__()
        self.heads, self.gpt2 = s.H, family == "gpt2"
        inner = s.inner(family)
        self.qkv = nn.Linear(s.D, 3 * s.D, bias=self.gpt2)
        self.o = nn.Linear(s.D, s.D, bias=self.gpt2)
        self.up = nn.Linear(s.D, inner if self.gpt2 else 2 * inner, bias=self.gpt2)
        self.down = nn.Linear(inner, s.D, bias=self.gpt2)
        self.norm_1 = nn.LayerNorm(s.D, eps=1e-5) if self.gpt2 else nn.RMSNorm(s.D, eps=1e-6)
        self.norm_2 = nn.LayerNorm(s.D, eps=1e-5) if self.gpt2 else nn.RMSNorm(s.D, eps=1e-6)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]; cos, sin [T, d/2]."""
        B, T, D = x.shape
        q, k, v = (
            t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        )
        if not self.gpt2:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(B, T, D))
        h = self.up(self.norm_2(x))
        if self.gpt2:
            h = F.gelu(h, approximate="tanh")
        else:
            gate, up = h.chunk(2, dim=-1)
            h = F.silu(gate) * up
        return x + self.down(h)  # type: ignore[no-any-return]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE in half layout on [B, H, T, d]."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class Model(nn.Module):
    """Transformer++ (untied head) or GPT-2 (tied head); forward gives the mean loss."""

    def __init__(self, s: Shape, family: str) -> None:
        super().__init__()
        self.gpt2 = family == "gpt2"
        self.embed = nn.Embedding(s.V, s.D)
        self.blocks = nn.ModuleList(Block(s, family) for _ in range(s.L))
        self.norm = nn.LayerNorm(s.D, eps=1e-5) if self.gpt2 else nn.RMSNorm(s.D, eps=1e-6)
        self.head = nn.Linear(s.D, s.V, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        if self.gpt2:
            self.head.weight = self.embed.weight
            self.pos_embed = nn.Parameter(torch.randn(s.T, s.D) * 0.02)
        half = s.D // s.H // 2
        angle = torch.arange(s.T)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of ids [B, T]."""
        x = self.embed(inputs)
        if self.gpt2:
            x = x + self.pos_embed
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def load_weights(model: Model, weights: dict[str, NDArray[Any]]) -> None:
    """Copy weights with mudd_core's names and [in, out] layouts into the modules."""

    def put(target: Tensor, *names: str) -> None:
        parts = [weights.pop(n) for n in names]
        value = np.concatenate([p.T if p.ndim == 2 else p for p in parts], 0)
        if tuple(target.shape) != value.shape:
            raise ValueError(f"[load_weights] {names}: expected {tuple(target.shape)}, got {value.shape}")
        target.copy_(torch.from_numpy(np.ascontiguousarray(value)))

    weights = dict(weights)
    ffn_in = ("up",) if model.gpt2 else ("gate", "up")
    with torch.no_grad():
        model.embed.weight.copy_(torch.tensor(weights.pop("embed")))
        if model.gpt2:
            model.pos_embed.copy_(torch.tensor(weights.pop("pos_embed")))
        else:
            model.head.weight.copy_(torch.tensor(weights.pop("head")))
        norms: list[tuple[Any, str]] = [(model.norm, "final_norm")]
        for n, block in enumerate(cast(list[Block], list(model.blocks))):
            norms += [(block.norm_1, f"blocks.{n}.attn.norm"), (block.norm_2, f"blocks.{n}.ffn.norm")]
            for module, part, matrices in (
                (block.qkv, "attn", ("q", "k", "v")),
                (block.o, "attn", ("o",)),
                (block.up, "ffn", ffn_in),
                (block.down, "ffn", ("down",)),
            ):
                put(module.weight, *(f"blocks.{n}.{part}.{m}.w" for m in matrices))
                if model.gpt2:
                    put(module.bias, *(f"blocks.{n}.{part}.{m}.b" for m in matrices))
        for module, name in norms:
            put(module.weight, f"{name}.gain")
            if model.gpt2:
                put(module.bias, f"{name}.bias")
    if weights:
        raise ValueError(f"[load_weights] names that no module takes: {sorted(weights)}")


def make(s: Shape, family: str) -> tuple[nn.Module, Callable[[Any, dict[str, NDArray[Any]]], None]]:
    """(model, its loader of weights): this page's families, or those of peers/torch_<family>.py."""
    if family in ("transformer_pp", "gpt2"):
        return Model(s, family), load_weights
    page = importlib.import_module(f"torch_{family}")
    return page.Model(s), page.load_weights


def compiled(model: nn.Module, loss_of: Callable[[nn.Module], Tensor], scalar_ends: bool) -> nn.Module:
    """torch.compile with its defaults, unless its losses are NaN; then without vectorised ends of loops.

    Inductor of PyTorch 2.13 (g++ 12) goes wrong on some models and CPUs where it masks the ends of loops: NaN from the
    first loss at AVX2, a corrupted heap at AVX-512. With scalar ends losses equal eager's.
    """
    torch._inductor.config.cpp.enable_loop_tail_vec = not scalar_ends
    isa = str(pick_vec_isa())
    if not isa.startswith(torch.backends.cpu.get_cpu_capability().lower()):
        # Inductor tries its vector units out with the compiler and falls back to scalar code where that times out.
        raise SystemExit(f"[torch_step] compile: vector units '{isa}', not those of eager mode; run it again")
    run = cast(nn.Module, torch.compile(model))
    if not loss_of(run).isnan():
        return run
    torch._dynamo.reset()
    torch._inductor.config.cpp.enable_loop_tail_vec = False
    return cast(nn.Module, torch.compile(model))


def clip(model: nn.Module) -> None:
    """Gradients to norm CLIP, summed row by row.

    As fast as torch.nn.utils.clip_grad_norm_, which adds up whole tensors in fp32: its norm is off by 1e-4 on 9M and by
    more on 55M, and the losses after it by more than those of one and the same step may be.
    """
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    rows = [torch.linalg.vector_norm(g.view(-1, g.shape[-1]), dim=1) for g in gradients]
    norm = torch.linalg.vector_norm(torch.cat(rows))
    torch._foreach_mul_(gradients, (CLIP / (norm + 1e-6)).clamp(max=1.0))


def state_lengths(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """Lengths of all weights, first and second moments, to compare with ours."""
    values = list(model.parameters())
    state = [optimizer.state[p] for p in values]
    return {
        "weights": length(p.detach().numpy() for p in values),
        "first_moment": length(x["exp_avg"].numpy() for x in state),
        "second_moment": length(x["exp_avg_sq"].numpy() for x in state),
    }


def parse() -> argparse.Namespace:
    """Command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--family", choices=FAMILIES, default="transformer_pp")
    p.add_argument("--shape", choices=SHAPES, default="9M")
    p.add_argument(
        "--mode", choices=("eager", "compile", "double"), default="eager",
        help="double: eager in float64, to see what is rounding",
    )  # fmt: skip
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=20, help="timed steps")
    p.add_argument("--warmup", type=int, default=5, help="steps before the clock starts")
    p.add_argument("--in-turn", action="store_true", help="each step when a line comes in (turns.py)")
    p.add_argument(
        "--precision", choices=("fp32", "bf16"), default="fp32", help="bf16: autocast around forward"
    )
    p.add_argument("--scalar-ends", action="store_true", help="compile without vectorised ends of loops")
    p.add_argument("--weights", type=Path, help=".npz of initial weights with mudd_core's names")
    p.add_argument(
        "--json", action="store_true", help="accepted for symmetry with bench_step.py; always JSON"
    )
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
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups: list[dict[str, Any]] = [{"params": matrices, "weight_decay": DECAY}]
    groups.append({"params": others, "weight_decay": 0.0})
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS, fused=True)

    def loss_of(run: nn.Module, window: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=a.precision == "bf16"):
            return cast(Tensor, run(window[:, :-1], window[:, 1:]))

    first = torch.from_numpy(batch_tokens(s, 0))
    run = compiled(model, lambda run: loss_of(run, first), a.scalar_ends) if a.mode == "compile" else model
    losses, seconds = [], []
    for step in turns(a.warmup + a.steps, a.in_turn):
        window = torch.from_numpy(batch_tokens(s, step))
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(run, window)
        loss.backward()
        clip(model)
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    timed = seconds[a.warmup :]
    print(
        json.dumps(
            {
                "name": f"PyTorch {torch.__version__} {a.mode}"
                + (" autocast" if a.precision == "bf16" else ""),
                "tokens_per_second": s.tokens / statistics.median(timed),
                "spread": spread(timed),
                "peak_rss_mib": peak_rss_mib(),
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
