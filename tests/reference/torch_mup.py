"""The muP transformer in plain PyTorch (docs/maths/mup.md, 1), with mudd_core's parameter names.

Parameters: `embed`, `blocks.<l>.attn.{q,k,v,o}.{w,b}`, `blocks.<l>.ffn.{gate,up,down}.{w,b}`, `head`, `head_bias`;
with gains `embed_norm.gain`, `blocks.<l>.{attn.norm,attn.q_norm,attn.k_norm,ffn.norm}.gain`, `final_norm.gain`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from reference.torch_models import Batch, Params, _positions, _split, named_heads, rope


@dataclass(frozen=True)
class Mup:
    """Sizes and options as in docs/maths/mup.md, 1.1 to 1.4; window: the divisor of the sums of sqrelu and elu."""

    vocab_size: int
    layers: int
    d_model: int
    heads: int
    ffn: int
    scale: float
    window: int
    kv_heads: int = 0
    scores: str = "softmax"
    activation: str = "relu"
    rope_base: float = 10000.0
    norm_eps: float = 1e-5
    embed_norm: bool = False
    qk_norm: bool = False
    gains: int = 0  # 0 none, 1 one for all channels, 2 one for each
    biases: bool = False
    std: float = 0.3

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter by name."""
        D, hd = self.d_model, self.d_model // self.heads
        kv = (self.kv_heads or self.heads) * hd
        inner = ("gate", "up") if self.activation == "swiglu" else ("up",)
        products = {"attn.q": (D, D), "attn.k": (D, kv), "attn.v": (D, kv), "attn.o": (D, D)}
        products |= {f"ffn.{name}": (D, self.ffn) for name in inner} | {"ffn.down": (self.ffn, D)}
        norms = {"final_norm": D} | ({"embed_norm": D} if self.embed_norm else {})
        shapes: dict[str, tuple[int, ...]] = {"embed": (self.vocab_size, D), "head": (self.vocab_size, D)}
        if self.biases:
            shapes["head_bias"] = (self.vocab_size,)
        for layer in range(self.layers):
            block = f"blocks.{layer}."
            norms |= {f"{block}attn.norm": D, f"{block}ffn.norm": D}
            if self.qk_norm:
                norms |= {f"{block}attn.q_norm": hd, f"{block}attn.k_norm": hd}
            for name, shape in products.items():
                shapes[f"{block}{name}.w"] = shape
                if self.biases:
                    shapes[f"{block}{name}.b"] = shape[1:]
        if self.gains:
            shapes |= {f"{name}.gain": (1 if self.gains == 1 else width,) for name, width in norms.items()}
        return shapes

    def rms(self, p: Params, x: Tensor, name: str) -> Tensor:
        """Apply RMSNorm over the last axis."""
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.norm_eps)
        return y * p[f"{name}.gain"] if self.gains else y

    def product(self, p: Params, x: Tensor, name: str) -> Tensor:
        """Return x W (+ b)."""
        y = x @ p[f"{name}.w"]
        return y + p[f"{name}.b"] if self.biases else y

    def weights(self, s: Tensor, see: Tensor) -> Tensor:
        """Return the attention weights for the scores."""
        if self.scores == "softmax":
            return s.masked_fill(~see, torch.finfo(s.dtype).min).softmax(-1) * see
        a = (F.relu(s) ** 2 if "sqrelu" in self.scores else F.elu(s) + 1) * see
        return a / (self.norm_eps + a.sum(-1, keepdim=True) if "norm" in self.scores else self.window)

    def attention(self, p: Params, x: Tensor, batch: Batch, a: str) -> Tensor:
        """Return the heads side by side [B, T, H*hd]."""
        groups = self.kv_heads or self.heads
        q, k, v = (
            _split(batch.named(f"{a}.{m}", self.product(p, x, f"{a}.{m}")), n)
            for m, n in zip("qkv", (self.heads, groups, groups), strict=True)
        )
        if self.qk_norm:
            q, k = self.rms(p, q, f"{a}.q_norm"), self.rms(p, k, f"{a}.k_norm")
        if self.rope_base:
            q, k = (rope(z, _positions(batch), self.rope_base) for z in (q, k))
        q, k = named_heads(batch, f"{a}.queries", q), named_heads(batch, f"{a}.keys", k)
        k, v = (z.repeat_interleave(self.heads // groups, dim=2) for z in (k, v))
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) * self.scale
        T = q.shape[1]
        see = torch.tril(torch.ones(T, T, dtype=torch.bool))[None]
        if batch.segments is not None:
            see = see & (batch.segments[:, :, None] == batch.segments[:, None, :])
        if batch.key_mask is not None:
            see = see & (batch.key_mask != 0)[:, None, :]
        w = batch.named(f"{a}.weights", self.weights(s, see[:, None]))
        return batch.named(f"{a}.heads", torch.einsum("bhqk,bkhd->bqhd", w, v).flatten(2))

    def feed_forward(self, p: Params, x: Tensor, batch: Batch, f: str) -> Tensor:
        """Return the inner activations [B, T, F]."""
        up = batch.named(f"{f}.up", self.product(p, x, f"{f}.up"))
        if self.activation == "swiglu":
            return F.silu(batch.named(f"{f}.gate", self.product(p, x, f"{f}.gate"))) * up
        if self.activation == "gelu":
            return F.gelu(up, approximate="tanh")
        if self.activation == "silu":
            return F.silu(up)
        return F.relu(up) ** (2 if self.activation == "sqrelu" else 1)

    def logits(self, p: Params, batch: Batch) -> Tensor:
        """Return logits [B, T, V]."""
        x = p["embed"][batch.tokens]
        if self.embed_norm:
            x = self.rms(p, x, "embed_norm")
        x = batch.named("embed.out", x)
        for layer in range(self.layers):
            b, a, f = f"blocks.{layer}", f"blocks.{layer}.attn", f"blocks.{layer}.ffn"
            o = self.attention(p, batch.named(f"{a}.in", self.rms(p, x, f"{a}.norm")), batch, a)
            x = batch.named(f"{b}.mid", x + batch.named(f"{a}.out", self.product(p, o, f"{a}.o")))
            u = self.feed_forward(p, batch.named(f"{f}.in", self.rms(p, x, f"{f}.norm")), batch, f)
            y = self.product(p, batch.named(f"{f}.inner", u), f"{f}.down")
            x = batch.named(f"{b}.out", x + batch.named(f"{f}.out", y))
        y = batch.named("final_norm.out", self.rms(p, x, "final_norm")) @ p["head"].T
        return y + p["head_bias"] if self.biases else y
