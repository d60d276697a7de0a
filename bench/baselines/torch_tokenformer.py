"""TokenFormer in plain PyTorch for torch_step.py, with stock operations.

One matmul for the keys of q, k and v, SDPA, layer_norm without parameters, gelu in one call; the head is tied.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from shapes import Shape

EPS = 1e-5


def activated(scores: Tensor) -> Tensor:
    """Return gelu(sqrt(n) a / (|a| + eps)) for each row a of scores [..., n]."""
    scale = math.sqrt(scores.shape[-1]) / (scores.norm(dim=-1, keepdim=True) + EPS)
    return F.gelu(scores * scale, approximate="tanh")


class Slots(nn.Module):
    """Attention to n learned tokens: x [..., D] -> [..., D]."""

    def __init__(self, width: int, n: int) -> None:
        super().__init__()
        self.key = nn.Parameter(torch.randn(n, width) * 0.02)
        self.value = nn.Parameter(torch.randn(n, width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        return activated(F.linear(x, self.key)) @ self.value


class Block(nn.Module):
    """Pre-norm block: x [B, T, D] -> [B, T, D]."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.heads = s.H
        self.qkv_key = nn.Parameter(torch.randn(3 * s.slots, s.D) * 0.02)
        self.qkv_value = nn.Parameter(torch.randn(3, s.slots, s.D) * 0.02)
        self.o, self.ffn = Slots(s.D, s.slots), Slots(s.D, s.inner("tokenformer"))

    def forward(self, x: Tensor) -> Tensor:
        B, T, D = x.shape
        scores = F.linear(F.layer_norm(x, (D,)), self.qkv_key).chunk(3, dim=-1)
        q, k, v = (
            (activated(a) @ w).view(B, T, self.heads, -1).transpose(1, 2)
            for a, w in zip(scores, self.qkv_value.unbind(), strict=True)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(B, T, D))
        return x + self.ffn(F.layer_norm(x, (D,)))  # type: ignore[no-any-return]


class Model(nn.Module):
    """Model without positions; forward returns the mean loss.

    The head is tied to the embedding, and the logits are divided by sqrt(D).
    """

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.embed = nn.Embedding(s.V, s.D)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.L))
        self.gain, self.bias = nn.Parameter(torch.zeros(s.D)), nn.Parameter(torch.zeros(s.D))

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of ids [B, T]."""
        x = self.embed(inputs)
        for block in self.blocks:
            x = block(x)
        h = F.layer_norm(x, (x.shape[-1],), 1 + self.gain, self.bias) / math.sqrt(x.shape[-1])
        return F.cross_entropy(F.linear(h, self.embed.weight).flatten(0, 1), targets.flatten())


def load_weights(model: Any, weights: dict[str, NDArray[Any]]) -> None:
    """Copy weights with mudd_core's names into the modules."""
    weights = dict(weights)

    def put(target: Tensor, *names: str, stack: bool = False) -> None:
        parts = [weights.pop(name) for name in names]
        value = np.stack(parts) if stack else np.concatenate(parts)
        if tuple(target.shape) != value.shape:
            raise ValueError(f"[load_weights] {names}: expected {tuple(target.shape)}, got {value.shape}")
        target.copy_(torch.from_numpy(np.ascontiguousarray(value)))

    with torch.no_grad():
        put(model.embed.weight, "embed")
        put(model.gain, "final_norm.gain")
        put(model.bias, "final_norm.bias")
        for n, block in enumerate(model.blocks):
            put(block.qkv_key, *(f"blocks.{n}.attn.{m}.key" for m in "qkv"))
            put(block.qkv_value, *(f"blocks.{n}.attn.{m}.value" for m in "qkv"), stack=True)
            for module, part in ((block.o, "attn.o"), (block.ffn, "ffn")):
                put(module.key, f"blocks.{n}.{part}.key")
                put(module.value, f"blocks.{n}.{part}.value")
    if weights:
        raise ValueError(f"[load_weights] names that no module takes: {sorted(weights)}")
