"""Transformer++ with the options of Gemma 3, OLMo 3 and SmolLM3 in plain PyTorch, with mudd_core's names.

Maths: docs/maths/transformer.md, 2.
Parameters: `embed`, which is the head too, `blocks.<l>.attn.{q,k,v,o}.w`, `blocks.<l>.ffn.{gate,up,down}.w`, the gains
`blocks.<l>.{attn,ffn}.{norm,post_norm}.gain` (norm only if is_normed_before), `blocks.<l>.attn.{q,k}_norm.gain` and
`final_norm.gain`.
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
    is_normed_before: bool = True
    is_qk_norm_whole: bool = False
    is_gelu: bool = True
    is_embedding_scaled: bool = True
    nope: tuple[int, ...] = ()

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
            norms = ("norm", "post_norm") if self.is_normed_before else ("post_norm",)
            shapes |= {f"{part}{norm}.gain": (D,) for part in (a, f) for norm in norms}
            whole = self.is_qk_norm_whole
            shapes |= {f"{a}q_norm.gain": (q if whole else hd,), f"{a}k_norm.gain": (kv if whole else hd,)}
        return shapes

    def norm(self, p: Params, x: Tensor, name: str) -> Tensor:
        """Apply RMSNorm over the last axis, times gain_offset + gain."""
        return rms_norm(x, self.gain_offset + p[f"{name}.gain"], self.norm_eps)

    def before(self, p: Params, x: Tensor, name: str) -> Tensor:
        """Return the input of a branch."""
        return self.norm(p, x, name) if self.is_normed_before else x

    def rotated(self, p: Params, x: Tensor, batch: Batch, name: str, layer: int) -> Tensor:
        """Return queries or keys after their norm, with rotary positions."""
        x = (
            self.norm(p, x.flatten(2), name).unflatten(2, x.shape[2:])
            if self.is_qk_norm_whole
            else self.norm(p, x, name)
        )
        base = self.local_base if layer in self.windowed else self.rope_base
        return x if layer in self.nope else rope(x, _positions(batch), base)

    def attention(self, p: Params, x: Tensor, batch: Batch, layer: int) -> Tensor:
        """Return the branch [B, T, D], without its norm and the residual."""
        a, T = f"blocks.{layer}.attn.", x.shape[1]
        is_windowed = layer in self.windowed
        n = batch.named(a + "in", self.before(p, x, a + "norm"))
        counts = (self.heads, self.kv_heads, self.kv_heads)
        q, k, v = (
            _split(batch.named(a + m, n @ p[f"{a}{m}.w"]), heads)
            for m, heads in zip("qkv", counts, strict=True)
        )
        q, k = (
            named_heads(batch, a + name, self.rotated(p, z, batch, a + norm, layer))
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
        scale = math.sqrt(self.d_model) if self.is_embedding_scaled else 1.0
        x = batch.named("embed.out", p["embed"][batch.tokens] * scale)
        for layer in range(self.layers):
            b, f = f"blocks.{layer}.", f"blocks.{layer}.ffn."
            y = self.norm(p, self.attention(p, x, batch, layer), b + "attn.post_norm")
            x = batch.named(b + "mid", x + batch.named(b + "attn.out", y))
            n = batch.named(f + "in", self.before(p, x, f + "norm"))
            gate, up = (batch.named(f + m, n @ p[f"{f}{m}.w"]) for m in ("gate", "up"))
            gate = F.gelu(gate, approximate="tanh") if self.is_gelu else F.silu(gate)
            y = batch.named(f + "inner", gate * up) @ p[f + "down.w"]
            x = batch.named(b + "out", x + batch.named(f + "out", self.norm(p, y, f + "post_norm")))
        return batch.named("final_norm.out", self.norm(p, x, "final_norm")) @ p["embed"].T
