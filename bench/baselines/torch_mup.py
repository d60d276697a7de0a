"""The muP transformer as a plain PyTorch program: relu, norms without gains, scores over the width of a head.

It is as fast as stock PyTorch allows: SDPA, one qkv matmul, F.rms_norm. All parameters share one learning rate, because
muP's rule gives the same rate to all of them at the base width.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_rope import angles, rotate

from shapes import Shape

_EPS = 1e-5


class Block(nn.Module):
    """Pre-norm block: x [B, T, D] -> [B, T, D]."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.heads = s.H
        self.qkv = nn.Linear(s.D, 3 * s.D, bias=False)
        self.o = nn.Linear(s.D, s.D, bias=False)
        self.up = nn.Linear(s.D, s.inner("mup"), bias=False)
        self.down = nn.Linear(s.inner("mup"), s.D, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Return the output [B, T, D]. cos and sin are [T, d/2]."""
        B, T, D = x.shape
        qkv = self.qkv(F.rms_norm(x, (D,), eps=_EPS)).chunk(3, dim=-1)
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in qkv)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.heads / D)
        x = x + self.o(y.transpose(1, 2).reshape(B, T, D))
        return x + self.down(F.relu(self.up(F.rms_norm(x, (D,), eps=_EPS))))  # type: ignore[no-any-return]


class Model(nn.Module):
    """Model with an untied head; forward returns the mean loss."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.embed = nn.Embedding(s.V, s.D)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.L))
        self.head = nn.Linear(s.D, s.V, bias=False)
        cos, sin = angles(s)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of ids [B, T]."""
        x = self.embed(inputs)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(F.rms_norm(x, (x.shape[-1],), eps=_EPS))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def load_weights(model: Any, weights: dict[str, NDArray[Any]]) -> None:
    """Copy weights with mudd_core's names and [in, out] layouts into the modules."""
    left = set(weights)

    def take(*names: str) -> Tensor:
        left.difference_update(names)
        return torch.cat([torch.tensor(weights[name]).T for name in names], 0)

    with torch.no_grad():
        model.embed.weight.copy_(take("embed").T)
        model.head.weight.copy_(take("head").T)
        for n, block in enumerate(cast(list[Block], list(model.blocks))):
            block.qkv.weight.copy_(take(*(f"blocks.{n}.attn.{m}.w" for m in "qkv")))
            block.o.weight.copy_(take(f"blocks.{n}.attn.o.w"))
            block.up.weight.copy_(take(f"blocks.{n}.ffn.up.w"))
            block.down.weight.copy_(take(f"blocks.{n}.ffn.down.w"))
    if left:
        raise ValueError(f"[load_weights] names that no module takes: {sorted(left)}")
