"""Readable PyTorch versions of the model families, with mudd_core's parameter names and layouts.

A model here is one function of (params, tokens): no modules, no fused attention, full score matrices. The tests compare
logits, loss and every gradient with these (`torch_training.py`); `check_goldens.py` compares these with the original
programs.

Parameters (contracts 10 and 11): `embed` [V, D], `blocks.<l>.attn.{q,k,v,o}.{w,b}` [in, out],
`blocks.<l>.attn.norm.*`, `blocks.<l>.ffn.{gate,up,down}.{w,b}`, `blocks.<l>.ffn.norm.*`,
`final_norm.{gain,bias}`, `head` [V, D] unless tied, GPT-2 also `pos_embed` [Tmax, D].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Params = dict[str, Tensor]
Array = NDArray[Any]


@dataclass(frozen=True)
class LlamaConfig:
    """Transformer++ (docs/maths/transformer.md, 2): RMSNorm, RoPE in half layout, SwiGLU, GQA, no biases."""

    vocab_size: int
    layers: int
    d_model: int
    heads: int
    kv_heads: int
    ffn: int
    norm_eps: float = 1e-6
    rope_base: float = 10000.0
    tied: bool = False


@dataclass(frozen=True)
class Gpt2Config:
    """GPT-2 as in transformers: LayerNorm, learned positions, gelu_new, biases, head tied to `embed`."""

    vocab_size: int
    layers: int
    d_model: int
    heads: int
    ffn: int
    max_positions: int
    norm_eps: float = 1e-5
    tied: bool = True

    def drop(self, place: str, x: Tensor) -> Tensor:
        """Return x without dropout; a subclass may add it at a place of the model."""
        return x


class OtherConfig(Protocol):
    """A family in a separate file, which has its formulas."""

    @property
    def vocab_size(self) -> int:
        """Number of ids."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter by name."""

    def logits(self, p: Params, batch: Batch) -> Tensor:
        """Return logits [B, T, V]."""


Config = LlamaConfig | Gpt2Config | OtherConfig


@dataclass(frozen=True)
class Batch:
    """tokens [B, T]; positions, segments and key_mask [B, T] or None (contracts 14).

    named: called with every value inside a model and mudd_core's name for it; the model continues with its result.
    """

    tokens: Tensor
    positions: Tensor | None = None
    segments: Tensor | None = None
    key_mask: Tensor | None = None
    named: Callable[[str, Tensor], Tensor] = lambda name, value: value


# ---------------------------------------------------------------- shared pieces


def rms_norm(x: Tensor, gain: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), gain, bias, eps)


def rope(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """Rotate x [B, T, H, d] by positions [B, T]; angles are computed in float64, then rounded to the type of x."""
    half = x.shape[-1] // 2
    theta = base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = positions.to(torch.float64)[:, :, None, None] * theta
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    x1, x2 = x[..., :half], x[..., half:]
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1)


def causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    batch: Batch,
    part: str = "",
    drop: Callable[[Tensor], Tensor] = lambda p: p,
) -> Tensor:
    """Return [B, T, H*d] for q [B, T, H, d], k and v [B, T, G, d]; a row without keys gets zeros. part: its name."""
    B, T, H, d = q.shape
    q, k = named_heads(batch, part + "queries", q), named_heads(batch, part + "keys", k)
    k = k.repeat_interleave(H // k.shape[2], dim=2)
    v = v.repeat_interleave(H // v.shape[2], dim=2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(d)
    see = torch.tril(torch.ones(T, T, dtype=torch.bool))[None]
    if batch.segments is not None:
        see = see & (batch.segments[:, :, None] == batch.segments[:, None, :])
    if batch.key_mask is not None:
        see = see & (batch.key_mask != 0)[:, None, :]
    see = see[:, None]
    p = scores.masked_fill(~see, torch.finfo(scores.dtype).min).softmax(-1) * see
    p = batch.named(part + "weights", drop(p))
    return batch.named(part + "heads", torch.einsum("bhqk,bkhd->bqhd", p, v).reshape(B, T, H * d))


def named_heads(batch: Batch, name: str, x: Tensor) -> Tensor:
    """Name x [B, T, H, d], with the heads side by side."""
    return batch.named(name, x.flatten(2)).unflatten(2, x.shape[2:])


def _positions(batch: Batch) -> Tensor:
    if batch.positions is not None:
        return batch.positions
    return torch.arange(batch.tokens.shape[1])[None, :].expand_as(batch.tokens)


def _split(x: Tensor, heads: int) -> Tensor:
    return x.reshape(*x.shape[:2], heads, -1)


# ---------------------------------------------------------------- models


def llama_logits(p: Params, batch: Batch, cfg: LlamaConfig) -> Tensor:
    """Return logits [B, T, V]."""
    x = batch.named("embed.out", p["embed"][batch.tokens])
    for layer in range(cfg.layers):
        b, f = f"blocks.{layer}.", f"blocks.{layer}.ffn."
        x = batch.named(b + "mid", x + llama_attention(p, x, batch, cfg, b + "attn."))
        n = batch.named(f + "in", rms_norm(x, p[f + "norm.gain"], cfg.norm_eps))
        gate, up = (batch.named(f + m, n @ p[f"{f}{m}.w"]) for m in ("gate", "up"))
        y = batch.named(f + "inner", F.silu(gate) * up) @ p[f + "down.w"]
        x = batch.named(b + "out", x + batch.named(f + "out", y))
    x = batch.named("final_norm.out", rms_norm(x, p["final_norm.gain"], cfg.norm_eps))
    return x @ (p["embed"] if cfg.tied else p["head"]).T


class LlamaAttention(Protocol):
    """The config fields that attention reads."""

    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def norm_eps(self) -> float: ...
    @property
    def rope_base(self) -> float: ...


def llama_attention(p: Params, x: Tensor, batch: Batch, cfg: LlamaAttention, a: str) -> Tensor:
    """Return the branch `a` [B, T, D], without the residual."""
    n = batch.named(a + "in", rms_norm(x, p[a + "norm.gain"], cfg.norm_eps))
    q, k, v = (
        _split(batch.named(a + m, n @ p[f"{a}{m}.w"]), heads)
        for m, heads in zip("qkv", (cfg.heads, cfg.kv_heads, cfg.kv_heads), strict=True)
    )
    if f"{a}q_norm.gain" in p:
        q, k = (rms_norm(z, p[f"{a}{m}_norm.gain"], cfg.norm_eps) for z, m in ((q, "q"), (k, "k")))
    q, k = (rope(z, _positions(batch), cfg.rope_base) for z in (q, k))
    return batch.named(a + "out", causal_attention(q, k, v, batch, a) @ p[a + "o.w"])


def gpt2_logits(p: Params, batch: Batch, cfg: Gpt2Config) -> Tensor:
    """Return logits [B, T, V]."""
    named = batch.named
    x = named("embed.out", cfg.drop("embed", p["embed"][batch.tokens] + p["pos_embed"][_positions(batch)]))
    for layer in range(cfg.layers):
        b, a, f = f"blocks.{layer}.", f"blocks.{layer}.attn.", f"blocks.{layer}.ffn."
        n = named(a + "in", layer_norm(x, p[a + "norm.gain"], p[a + "norm.bias"], cfg.norm_eps))
        q, k, v = (_split(named(a + m, n @ p[f"{a}{m}.w"] + p[f"{a}{m}.b"]), cfg.heads) for m in "qkv")
        o = causal_attention(q, k, v, batch, a, lambda s, place=a: cfg.drop(f"{place}scores", s))
        x = named(b + "mid", x + named(a + "out", cfg.drop(a + "o", o @ p[a + "o.w"] + p[a + "o.b"])))
        n = named(f + "in", layer_norm(x, p[f + "norm.gain"], p[f + "norm.bias"], cfg.norm_eps))
        up = named(f + "up", n @ p[f + "up.w"] + p[f + "up.b"])
        inner = named(f + "inner", F.gelu(up, approximate="tanh"))
        y = named(f + "out", cfg.drop(f + "down", inner @ p[f + "down.w"] + p[f + "down.b"]))
        x = named(b + "out", x + y)
    x = named("final_norm.out", layer_norm(x, p["final_norm.gain"], p["final_norm.bias"], cfg.norm_eps))
    return x @ (p["embed"] if cfg.tied else p["head"]).T


# ---------------------------------------------------------------- parameters, batches


def parameter_shapes(cfg: Config) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter of `cfg` by name."""
    if not isinstance(cfg, LlamaConfig | Gpt2Config):
        return cfg.shapes()
    D, V, inner = cfg.d_model, cfg.vocab_size, cfg.ffn
    gpt2 = isinstance(cfg, Gpt2Config)
    kv = D if isinstance(cfg, Gpt2Config) else cfg.kv_heads * (D // cfg.heads)
    ffn = [("up", D, inner), ("down", inner, D)] + ([] if gpt2 else [("gate", D, inner)])
    attn = [("q", D, D), ("k", D, kv), ("v", D, kv), ("o", D, D)]
    shapes = {"embed": (V, D)}
    if isinstance(cfg, Gpt2Config):
        shapes["pos_embed"] = (cfg.max_positions, D)
    norms = ["final_norm"]
    for layer in range(cfg.layers):
        for part, weights in (("attn", attn), ("ffn", ffn)):
            norms.append(f"blocks.{layer}.{part}.norm")
            for name, fan_in, fan_out in weights:
                shapes[f"blocks.{layer}.{part}.{name}.w"] = (fan_in, fan_out)
                if gpt2:
                    shapes[f"blocks.{layer}.{part}.{name}.b"] = (fan_out,)
    for norm in norms:
        shapes[f"{norm}.gain"] = (D,)
        if gpt2:
            shapes[f"{norm}.bias"] = (D,)
    if not cfg.tied:
        shapes["head"] = (V, D)
    return shapes


def random_params(cfg: Config, seed: int = 0, std: float = 0.08) -> dict[str, Array]:
    """Return normal weights; gains around 1 and biases around 0, so that no path is trivially zero or one."""
    rng = np.random.default_rng(seed)
    params = {}
    for name, shape in sorted(parameter_shapes(cfg).items()):
        x = rng.normal(0.0, std, shape)
        if name.endswith("gain"):
            x += getattr(cfg, "mean_gain", 1.0)
        elif name.endswith("mix.bias"):
            x[:, -1] += 1.0  # as initialized: mostly the newest state
        params[name] = x.astype(np.float32)
    return params


def model_logits(p: Params, batch: Batch, cfg: Config) -> Tensor:
    """Return the logits of the family, chosen by the type of cfg."""
    if not isinstance(cfg, LlamaConfig | Gpt2Config):
        return cfg.logits(p, batch)
    return gpt2_logits(p, batch, cfg) if isinstance(cfg, Gpt2Config) else llama_logits(p, batch, cfg)


def _tensor(x: Array | None) -> Tensor | None:
    return None if x is None else torch.from_numpy(np.ascontiguousarray(x, dtype=np.int64))


def make_batch(
    tokens: Array,
    positions: Array | None = None,
    segments: Array | None = None,
    key_mask: Array | None = None,
) -> Batch:
    """Return a batch of int64 tensors from arrays [B, T] of any integer or boolean type."""
    ids = torch.from_numpy(np.ascontiguousarray(tokens, dtype=np.int64))
    return Batch(ids, _tensor(positions), _tensor(segments), _tensor(key_mask))
