"""Mixtral in plain PyTorch, the baseline of bench_baselines.py: 8 experts, top-2, a loop over gathered tokens.

It follows the eager experts of transformers: for each expert, gather the tokens routed to it, compute gate and up in
one matmul, and index_add_ the weighted results. The loss includes the pooled balance loss, as in training.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_rope import angles, rotate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from shapes import AUX, EXPERTS, TOP_K, Shape


class Experts(nn.Module):
    """Router and experts: [rows, D] -> ([rows, D], router logits [rows, E])."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.router = nn.Linear(s.D, EXPERTS, bias=False)
        self.gate_up = nn.Parameter(torch.empty(EXPERTS, 2 * s.F, s.D))
        self.down = nn.Parameter(torch.empty(EXPERTS, s.D, s.F))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return (output, router logits); gates are normalized over the chosen experts."""
        logits = self.router(x)
        gates, chosen = torch.topk(F.softmax(logits, dim=-1), TOP_K, dim=-1)
        gates = gates / gates.sum(dim=-1, keepdim=True)
        y = torch.zeros_like(x)
        for e in range(EXPERTS):
            rows, slot = torch.where(chosen == e)
            gate, up = F.linear(x[rows], self.gate_up[e]).chunk(2, dim=-1)
            out = F.linear(F.silu(gate) * up, self.down[e]) * gates[rows, slot, None]
            y.index_add_(0, rows, out.to(y.dtype))  # autocast: experts in bf16, sums in fp32
        return y, logits


class Block(nn.Module):
    """Pre-norm block: x [B, T, D] -> [B, T, D] and router logits."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.heads = s.H
        self.qkv = nn.Linear(s.D, 3 * s.D, bias=False)
        self.o = nn.Linear(s.D, s.D, bias=False)
        self.experts = Experts(s)
        self.norm_1, self.norm_2 = nn.RMSNorm(s.D, eps=1e-5), nn.RMSNorm(s.D, eps=1e-5)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Return (output [B, T, D], router logits). cos and sin are [T, d/2]."""
        B, T, D = x.shape
        q, k, v = (
            t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(B, T, D))
        y, logits = self.experts(self.norm_2(x).view(B * T, D))
        return x + y.view(B, T, D), logits


class Model(nn.Module):
    """Model whose forward returns the mean loss with the balance loss."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.embed = nn.Embedding(s.V, s.D)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.L))
        self.norm = nn.RMSNorm(s.D, eps=1e-5)
        self.head = nn.Linear(s.D, s.V, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        cos, sin = angles(s, 1e6)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of ids [B, T]."""
        x, routers = self.embed(inputs), []
        for block in self.blocks:
            x, logits = block(x, self.cos, self.sin)
            routers.append(logits)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten()) + AUX * balance(torch.cat(routers))


def balance(logits: Tensor) -> Tensor:
    """Return E * sum_e(fraction of slots of e * mean probability of e), over all layers and the tokens of all ranks."""
    p = F.softmax(logits, dim=-1)
    chosen = torch.topk(p, TOP_K, dim=-1).indices
    share = F.one_hot(chosen, EXPERTS).to(p.dtype).mean(0).sum(0)
    if dist.is_initialized():  # the mean over ranks then equals the mean over the whole batch
        dist.all_reduce(share)
        share /= dist.get_world_size()
    return EXPERTS * (share * p.mean(0)).sum()


def load_weights(model: Model, weights: dict[str, NDArray[Any]]) -> None:
    """Copy weights with mudd_core's names and [in, out] layouts into the modules."""
    weights = dict(weights)

    def put(target: Any, *names: str) -> None:
        parts = [weights.pop(name) for name in names]
        turned = [p if p.ndim == 1 else p.swapaxes(-1, -2) for p in parts]
        value = np.concatenate(turned, 0 if turned[0].ndim == 1 else -2)
        if tuple(target.shape) != value.shape:
            raise ValueError(f"[load_weights] {names}: expected {tuple(target.shape)}, got {value.shape}")
        target.copy_(torch.from_numpy(np.ascontiguousarray(value)))

    with torch.no_grad():
        model.embed.weight.copy_(torch.tensor(weights.pop("embed")))
        model.head.weight.copy_(torch.tensor(weights.pop("head")))
        put(model.norm.weight, "final_norm.gain")
        for n, block in enumerate(cast(list[Block], list(model.blocks))):
            put(block.norm_1.weight, f"blocks.{n}.attn.norm.gain")
            put(block.norm_2.weight, f"blocks.{n}.ffn.norm.gain")
            put(block.qkv.weight, *(f"blocks.{n}.attn.{m}.w" for m in "qkv"))
            put(block.o.weight, f"blocks.{n}.attn.o.w")
            put(block.experts.router.weight, f"blocks.{n}.ffn.router.w")
            put(block.experts.gate_up, f"blocks.{n}.ffn.gate.w", f"blocks.{n}.ffn.up.w")
            put(block.experts.down, f"blocks.{n}.ffn.down.w")
    if weights:
        raise ValueError(f"[load_weights] names that no module takes: {sorted(weights)}")
