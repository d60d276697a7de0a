"""Transformer++ and GPT-2 in plain PyTorch: SDPA, one qkv and one gate-up matmul."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_rope import angles, rotate

from shapes import Shape


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
        """Return the output [B, T, D] for x [B, T, D]. cos and sin are [T, d/2]."""
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


class Model(nn.Module):
    """Transformer++ (untied head) or GPT-2 (tied head); forward returns the mean loss."""

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
        cos, sin = angles(s)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of ids [B, T]."""
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
