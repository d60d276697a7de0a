"""MUDDFormer in plain PyTorch, the baseline of bench_baselines.py: no pre- or postnorm, equal FFN widths in all blocks.

The states of a token are stacked and mixed for all streams by one batched matmul, as in the authors' inference program.
This is fastest in eager mode. Adding the states one by one is slower in eager mode and equally fast when compiled.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_rope import angles, rotate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from shapes import Shape, mudd_hidden

EPS = 1e-6


class Block(nn.Module):
    """Inputs q, k, v, r [B, T, D] -> [B, T, D]."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.heads = s.H
        self.q, self.k, self.v, self.o = (nn.Linear(s.D, s.D, bias=False) for _ in range(4))
        self.up = nn.Linear(s.D, 2 * s.F, bias=False)
        self.down = nn.Linear(s.F, s.D, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(s.D, eps=EPS) for _ in range(3))
        self.norm_2 = nn.RMSNorm(s.D, eps=EPS)

    def forward(self, streams: tuple[Tensor, ...], cos: Tensor, sin: Tensor) -> Tensor:
        """Return the output [B, T, D] for the four inputs. cos and sin are [T, d/2]."""
        B, T, D = streams[0].shape
        q, k, v = (
            linear(norm(x)).view(B, T, self.heads, -1).transpose(1, 2)
            for linear, norm, x in zip((self.q, self.k, self.v), self.norms, streams[:3], strict=True)
        )
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = streams[3] + self.o(y.transpose(1, 2).reshape(B, T, D))
        gate, up = self.up(self.norm_2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)  # type: ignore[no-any-return]


class Mixture(nn.Module):
    """Module that mixes all earlier states into streams [C, B, T, D]."""

    def __init__(self, s: Shape, layer: int) -> None:
        super().__init__()
        self.count = 1 if layer == s.L - 1 else 4
        hidden = mudd_hidden(s, layer)
        self.w1 = nn.Linear(s.D, hidden, bias=False)
        self.w2 = nn.Linear(hidden, self.count * (layer + 2), bias=False)
        self.bias = nn.Parameter(
            torch.zeros(self.count * (layer + 2))
        )  # a tensor with one axis, so weight decay does not apply

    def forward(self, states: list[Tensor]) -> tuple[Tensor, ...]:
        """Return the streams for states, l arrays [B, T, D]."""
        x = states[-1]
        u = F.rms_norm(x, (x.shape[-1],), eps=EPS)
        weights = self.w2(F.gelu(self.w1(u), approximate="tanh")) + self.bias
        return torch.unbind(weights.unflatten(-1, (self.count, -1)) @ torch.stack(states, dim=-2), dim=-2)


class Model(nn.Module):
    """Model whose forward returns the mean loss."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.embed = nn.Embedding(s.V, s.D)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.L))
        self.mixtures = nn.ModuleList(Mixture(s, n) for n in range(s.L))
        self.norm = nn.RMSNorm(s.D, eps=EPS)
        self.head = nn.Linear(s.D, s.V, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        cos, sin = angles(s)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of ids [B, T]."""
        states = [self.embed(inputs)]
        streams: tuple[Tensor, ...] = (states[0],) * 4
        for block, mixture in zip(self.blocks, self.mixtures, strict=True):
            states.append(block(streams, self.cos, self.sin))
            streams = mixture(states)
        logits = self.head(self.norm(streams[0]))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def load_weights(model: Model, weights: dict[str, NDArray[Any]]) -> None:
    """Copy weights with mudd_core's names and [in, out] layouts into the modules."""
    weights = dict(weights)

    def put(target: Any, *names: str, turn: bool = True) -> None:
        parts = [weights.pop(name) for name in names]
        value = np.concatenate([p.T if p.ndim == 2 and turn else p for p in parts], 0)
        if tuple(target.shape) != value.shape:
            raise ValueError(f"[load_weights] {names}: expected {tuple(target.shape)}, got {value.shape}")
        target.copy_(torch.from_numpy(np.ascontiguousarray(value)))

    with torch.no_grad():
        put(model.embed.weight, "embed", turn=False)
        put(model.head.weight, "head", turn=False)
        put(model.norm.weight, "final_norm.gain")
        blocks, mixtures = cast(list[Block], list(model.blocks)), cast(list[Mixture], list(model.mixtures))
        for n, (block, mixture) in enumerate(zip(blocks, mixtures, strict=True)):
            b = f"blocks.{n}."
            for c in "qkvo":
                put(getattr(block, c).weight, f"{b}attn.{c}.w")
            for norm, c in zip(cast(list[nn.RMSNorm], list(block.norms)), "qkv", strict=True):
                put(norm.weight, f"{b}attn.norm_{c}.gain")
            put(block.norm_2.weight, f"{b}ffn.norm.gain")
            put(block.up.weight, f"{b}ffn.gate.w", f"{b}ffn.up.w")
            put(block.down.weight, f"{b}ffn.down.w")
            put(mixture.w1.weight, f"{b}mix.w1")
            put(mixture.w2.weight, f"{b}mix.w2")
            weights[f"{b}mix.bias"] = weights[f"{b}mix.bias"].reshape(-1)
            put(mixture.bias, f"{b}mix.bias")
    if weights:
        raise ValueError(f"[load_weights] names that no module takes: {sorted(weights)}")
