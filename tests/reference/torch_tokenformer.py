"""TokenFormer and its dense baseline in plain PyTorch (docs/maths/tokenformer.md), with mudd_core's parameter names.

Parameters: `embed`, `pos_embed`, `blocks.<l>.attn.{q,k,v,o}.{key,value,key_bias,value_bias}`,
`blocks.<l>.ffn.{key,...}`, `final_norm.{gain,bias}`, `head`; the baseline has `.w` and `.b` instead of tokens, `up` and
`down`, and norms with parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from reference.torch_models import Batch, Params, _positions, _split, causal_attention, rope


@dataclass(frozen=True)
class Tokenformer:
    """Sizes and options as in docs/maths/tokenformer.md, 1 and 2; slots: for qkv, output, feed-forward."""

    vocab_size: int
    layers: int
    d_model: int
    heads: int
    slots: tuple[int, int, int]
    max_positions: int
    norm: str = "l2_norm_gelu"
    gelu: str = "tanh"  # or none, PyTorch's name for the exact form
    eps: float = 1e-5
    zoom: int = 0
    scales: tuple[float, float, float] = (1.0, 1.0, 1.0)
    biases: bool = False
    positions: str = "none"
    rope_fraction: float = 0.25
    gain_offset: float = 1.0
    tied: bool = True
    divide_logits: bool = True
    std: float = 0.5  # of random parameters; logits are divided, so smaller values would leave no gradient

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter by name."""
        D, shapes = self.d_model, self.outer_shapes()
        groups = {"attn.q": 0, "attn.k": 0, "attn.v": 0, "attn.o": 1, "ffn": 2}
        for layer in range(self.layers):
            for part, group in groups.items():
                name, n = f"blocks.{layer}.{part}", self.slots[group]
                shapes |= {f"{name}.key": (n, D), f"{name}.value": (n, D)}
                if self.biases:
                    shapes |= {f"{name}.key_bias": (n,), f"{name}.value_bias": (D,)}
        return shapes

    def outer_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the parameters outside of blocks."""
        D, V = self.d_model, self.vocab_size
        shapes: dict[str, tuple[int, ...]] = {
            "embed": (V, D),
            "final_norm.gain": (D,),
            "final_norm.bias": (D,),
        }
        if not self.tied:
            shapes["head"] = (V, D)
        if self.positions == "learned":
            shapes["pos_embed"] = (self.max_positions, D)
        return shapes

    def logits(self, p: Params, batch: Batch) -> Tensor:
        """Return logits [B, T, V]."""
        x = p["embed"][batch.tokens]
        if self.positions == "learned":
            x = x + p["pos_embed"][_positions(batch)]
        if self.positions == "sinusoidal":
            x = x + sinusoids(_positions(batch), self.d_model).to(x.dtype)
        x = batch.named("embed.out", x)
        for layer in range(self.layers):
            x = self.block(p, f"blocks.{layer}.", x, batch)
        gain = self.gain_offset + p["final_norm.gain"]
        h = F.layer_norm(x, (self.d_model,), gain, p["final_norm.bias"], 1e-5)
        scale = math.sqrt(self.d_model) if self.tied and self.divide_logits else 1.0  # of the logits
        return batch.named("final_norm.out", h / scale) @ p["embed" if self.tied else "head"].T

    def block(self, p: Params, name: str, x: Tensor, batch: Batch) -> Tensor:
        """Return the output of one layer."""
        a, f = name + "attn.", name + "ffn."
        u = batch.named(a + "in", F.layer_norm(x, (self.d_model,)))
        q, k, v = (_split(batch.named(a + m, self.pattention(p, a + m, u, 0)), self.heads) for m in "qkv")
        if self.positions == "rotary":
            q, k = (self.rotated(t, _positions(batch)) for t in (q, k))
        y = batch.named(a + "out", self.pattention(p, a + "o", causal_attention(q, k, v, batch, a), 1))
        x = batch.named(name + "mid", x + y)
        u = batch.named(f + "in", F.layer_norm(x, (self.d_model,)))
        return batch.named(name + "out", x + batch.named(f + "out", self.pattention(p, name + "ffn", u, 2)))

    def rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate the first fraction of each head."""
        turned = int(x.shape[-1] * self.rope_fraction)
        return torch.cat([rope(x[..., :turned], positions, 10000.0), x[..., turned:]], -1)

    def pattention(self, p: Params, name: str, x: Tensor, group: int) -> Tensor:
        """Return the attention of x to the parameter tokens `name`."""
        a = x @ p[name + ".key"].T
        if self.biases:
            a = a + p[name + ".key_bias"]
        zoom = self.zoom * (4 if group == 2 else 1)
        y = (self.scales[group] * self.theta(a, math.sqrt(zoom or a.shape[-1]))) @ p[name + ".value"]
        return y + p[name + ".value_bias"] if self.biases else y

    def theta(self, a: Tensor, tau: float) -> Tensor:
        """Return Theta of the scores; a row of zeros stays zero and has no gradient."""

        def unit(u: Tensor) -> Tensor:
            norm = u.norm(dim=-1, keepdim=True)
            return tau * u / (torch.where(norm > 0, norm, 1.0) + self.eps)

        if self.norm == "softmax":
            return a.shape[-1] * a.softmax(-1)
        if self.norm == "l2_norm_gelu":
            return F.gelu(unit(a), approximate=self.gelu)
        if self.norm == "l2_norm":
            return unit(a)
        g = F.gelu(a, approximate=self.gelu)
        if self.norm == "gelu_l2_norm":
            return unit(g)
        return g if self.norm == "gelu" else F.layer_norm(g, (g.shape[-1],), eps=self.eps)


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """Return [B, T, width]: sines, then cosines."""
    half = width // 2
    scale = torch.exp(-math.log(10000.0) * torch.arange(half, dtype=torch.float64) / max(1, half - 1))
    angle = positions[:, :, None].to(torch.float64) * scale
    return torch.cat([angle.sin(), angle.cos()], -1)


@dataclass(frozen=True)
class DenseBaseline:
    """The baseline of gpt2.yml: biased matrices, gains stored as their distance from 1, no positions."""

    vocab_size: int
    layers: int
    d_model: int
    heads: int
    ffn: int
    activation: str = "silu"
    std: float = 0.2

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter by name."""
        D, inner = self.d_model, self.ffn
        matrices = {f"attn.{m}": (D, D) for m in "qkvo"} | {"ffn.up": (D, inner), "ffn.down": (inner, D)}
        shapes: dict[str, tuple[int, ...]] = {"embed": (self.vocab_size, D)}
        norms = ["final_norm"]
        for layer in range(self.layers):
            norms += [f"blocks.{layer}.attn.norm", f"blocks.{layer}.ffn.norm"]
            for name, shape in matrices.items():
                shapes |= {f"blocks.{layer}.{name}.w": shape, f"blocks.{layer}.{name}.b": shape[1:]}
        return shapes | {f"{norm}.{which}": (D,) for norm in norms for which in ("gain", "bias")}

    def logits(self, p: Params, batch: Batch) -> Tensor:
        """Return logits [B, T, V]."""

        def norm(name: str, x: Tensor) -> Tensor:
            return F.layer_norm(x, (self.d_model,), 1 + p[name + ".gain"], p[name + ".bias"], 1e-5)

        def dense(name: str, x: Tensor) -> Tensor:
            return x @ p[name + ".w"] + p[name + ".b"]

        named = batch.named
        x = named("embed.out", p["embed"][batch.tokens])
        for layer in range(self.layers):
            b, a, f = f"blocks.{layer}.", f"blocks.{layer}.attn.", f"blocks.{layer}.ffn."
            u = named(a + "in", norm(a + "norm", x))
            q, k, v = (_split(named(a + m, dense(a + m, u)), self.heads) for m in "qkv")
            x = named(b + "mid", x + named(a + "out", dense(a + "o", causal_attention(q, k, v, batch, a))))
            up = named(f + "up", dense(f + "up", named(f + "in", norm(f + "norm", x))))
            inner = named(f + "inner", F.silu(up) if self.activation == "silu" else F.relu(up) ** 2)
            x = named(b + "out", x + named(f + "out", dense(f + "down", inner)))
        return named("final_norm.out", norm("final_norm", x) / math.sqrt(self.d_model)) @ p["embed"].T
