"""GPT-NeoX (Pythia) in plain PyTorch (docs/maths/transformer.md, 3), with mudd_core's parameter names.

Parameters: as GPT-2's in torch_models.py, without pos_embed, with a separate head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from reference.torch_models import Batch, Params, _positions, _split, causal_attention, layer_norm, rope


@dataclass(frozen=True)
class Neox:
    """Sizes and options as in docs/maths/transformer.md, 3. rotated: the rotated channels of a head."""

    vocab_size: int
    layers: int
    d_model: int
    heads: int
    ffn: int
    rotated: int
    norm_eps: float = 1e-5
    std: float = 0.08

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter by name."""
        D, V = self.d_model, self.vocab_size
        shapes: dict[str, tuple[int, ...]] = {"embed": (V, D), "head": (V, D)}
        norms = ["final_norm"]
        for layer in range(self.layers):
            a, f = f"blocks.{layer}.attn.", f"blocks.{layer}.ffn."
            norms += [f"{a}norm", f"{f}norm"]
            matrices = {f"{a}{name}": (D, D) for name in "qkvo"}
            matrices |= {f"{f}up": (D, self.ffn), f"{f}down": (self.ffn, D)}
            for name, shape in matrices.items():
                shapes |= {f"{name}.w": shape, f"{name}.b": shape[1:]}
        for norm in norms:
            shapes |= {f"{norm}.gain": (D,), f"{norm}.bias": (D,)}
        return shapes

    def rotate(self, x: Tensor, batch: Batch) -> Tensor:
        """Return x [B, T, H, hd] with rotary positions in its first channels."""
        return torch.cat([rope(x[..., : self.rotated], _positions(batch), 1e4), x[..., self.rotated :]], -1)

    def logits(self, p: Params, batch: Batch) -> Tensor:
        """Return logits [B, T, V]."""
        named = batch.named

        def norm(x: Tensor, name: str) -> Tensor:
            return layer_norm(x, p[f"{name}.gain"], p[f"{name}.bias"], self.norm_eps)

        def linear(x: Tensor, name: str) -> Tensor:
            return x @ p[f"{name}.w"] + p[f"{name}.b"]

        x = named("embed.out", p["embed"][batch.tokens])
        for layer in range(self.layers):
            b, a, f = f"blocks.{layer}.", f"blocks.{layer}.attn.", f"blocks.{layer}.ffn."
            n = named(a + "in", norm(x, a + "norm"))
            q, k, v = (_split(named(a + m, linear(n, a + m)), self.heads) for m in "qkv")
            q, k = self.rotate(q, batch), self.rotate(k, batch)
            o = linear(causal_attention(q, k, v, batch, a), a + "o")
            mid = named(b + "mid", x + named(a + "out", o))
            up = named(f + "up", linear(named(f + "in", norm(x, f + "norm")), f + "up"))
            y = linear(named(f + "inner", F.gelu(up)), f + "down")
            x = named(b + "out", mid + named(f + "out", y))
        return named("final_norm.out", norm(x, "final_norm")) @ p["head"].T
