"""Transformer++ with the options of Gemma 3 in plain PyTorch (docs/maths/transformer.md, 2), with mudd_core's names.

Parameters: `embed`, which is the head too, `blocks.<l>.attn.{q,k,v,o}.w`, `blocks.<l>.ffn.{gate,up,down}.w`, the gains
`blocks.<l>.{attn,ffn}.{norm,post_norm}.gain`, `blocks.<l>.attn.{q,k}_norm.gain` and `final_norm.gain`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from reference.torch_models import Batch, Params, _positions, _split, named_heads, rms_norm, rope


@dataclass(frozen=True)
class Layered:
    """Sizes and options as in docs/maths/transformer.md, 2. windowed: the layers with the window and its theta."""

    vocab_size: int
    layers: int
    d_model: int
    heads: int
    kv_heads: int
    width: int
    ffn: int
    window: int
    windowed: tuple[int, ...]
    rope_base: float
    local_base: float
    scalar: float
    norm_eps: float = 1e-6
    std: float = 0.08
    gain_offset: float = 1.0

    @property
    def mean_gain(self) -> float:
        """The mean of the gains in tests."""
        return 1.0 - self.gain_offset

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter by name."""
        D, hd = self.d_model, self.width
        q, kv = self.heads * hd, self.kv_heads * hd
        shapes: dict[str, tuple[int, ...]] = {"embed": (self.vocab_size, D), "final_norm.gain": (D,)}
        for layer in range(self.layers):
            a, f = f"blocks.{layer}.attn.", f"blocks.{layer}.ffn."
            shapes |= {f"{a}q.w": (D, q), f"{a}k.w": (D, kv), f"{a}v.w": (D, kv), f"{a}o.w": (q, D)}
            shapes |= {f"{f}gate.w": (D, self.ffn), f"{f}up.w": (D, self.ffn), f"{f}down.w": (self.ffn, D)}
            shapes |= {f"{part}{norm}.gain": (D,) for part in (a, f) for norm in ("norm", "post_norm")}
            shapes |= {f"{a}{norm}.gain": (hd,) for norm in ("q_norm", "k_norm")}
        return shapes

    def norm(self, p: Params, x: Tensor, name: str) -> Tensor:
        """Apply RMSNorm over the last axis, times gain_offset + gain."""
        return rms_norm(x, self.gain_offset + p[f"{name}.gain"], self.norm_eps)

    def attention(self, p: Params, x: Tensor, batch: Batch, layer: int) -> Tensor:
        """Return the branch [B, T, D], without its norm and the residual."""
        a, T = f"blocks.{layer}.attn.", x.shape[1]
        is_windowed = layer in self.windowed
        n = batch.named(a + "in", self.norm(p, x, a + "norm"))
        counts = (self.heads, self.kv_heads, self.kv_heads)
        q, k, v = (
            _split(batch.named(a + m, n @ p[f"{a}{m}.w"]), heads)
            for m, heads in zip("qkv", counts, strict=True)
        )
        base = self.local_base if is_windowed else self.rope_base
        q, k = (
            named_heads(batch, a + name, rope(self.norm(p, z, a + norm), _positions(batch), base))
            for z, norm, name in ((q, "q_norm", "queries"), (k, "k_norm", "keys"))
        )
        k, v = (z.repeat_interleave(self.heads // self.kv_heads, dim=2) for z in (k, v))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(self.scalar)
        see = torch.tril(torch.ones(T, T, dtype=torch.bool))[None]
        if is_windowed:
            see = see & torch.triu(torch.ones(T, T, dtype=torch.bool), 1 - self.window)[None]
        if batch.segments is not None:
            see = see & (batch.segments[:, :, None] == batch.segments[:, None, :])
        if batch.key_mask is not None:
            see = see & (batch.key_mask != 0)[:, None, :]
        see = see[:, None]
        weights = scores.masked_fill(~see, torch.finfo(scores.dtype).min).softmax(-1) * see
        weights = batch.named(a + "weights", weights)
        o = batch.named(a + "heads", torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))
        return o @ p[a + "o.w"]

    def logits(self, p: Params, batch: Batch) -> Tensor:
        """Return logits [B, T, V]."""
        x = batch.named("embed.out", p["embed"][batch.tokens] * math.sqrt(self.d_model))
        for layer in range(self.layers):
            b, f = f"blocks.{layer}.", f"blocks.{layer}.ffn."
            y = self.norm(p, self.attention(p, x, batch, layer), b + "attn.post_norm")
            x = batch.named(b + "mid", x + batch.named(b + "attn.out", y))
            n = batch.named(f + "in", self.norm(p, x, f + "norm"))
            gate, up = (batch.named(f + m, n @ p[f"{f}{m}.w"]) for m in ("gate", "up"))
            y = batch.named(f + "inner", F.gelu(gate, approximate="tanh") * up) @ p[f + "down.w"]
            x = batch.named(b + "out", x + batch.named(f + "out", self.norm(p, y, f + "post_norm")))
        return batch.named("final_norm.out", self.norm(p, x, "final_norm")) @ p["embed"].T
