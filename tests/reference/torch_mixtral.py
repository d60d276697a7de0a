"""Mixtral in PyTorch, token by token and expert by expert, with mudd_core's names and layouts.

Router and capacity follow the MLPerf reference; auxiliary losses follow transformers (pooled) and Megatron-LM (per
layer). numpy_moe.kept selects the dropped slots, which depend on the values but have no gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from reference import numpy_moe
from reference import torch_models as tm


@dataclass
class Routing:
    """Router logits [B, T, E] and the choices [B, T, k] of one layer."""

    z: Tensor
    chosen: Tensor


@dataclass(frozen=True, kw_only=True)
class Experts:
    """Router, capacity and losses of a mixture; fields as in mudd_core's config."""

    experts: int = 4
    top_k: int = 2
    aux_coef: float = 0.0
    aux_form: str = "pooled"
    z_coef: float = 0.0
    capacity_factor: float = 0.0
    capacity_scope: str = "sequence"
    drop_policy: str = "position"
    passthrough: bool = True

    def with_experts(self, shapes: dict[str, tuple[int, ...]], layers: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes of a dense model whose feed-forward matrices become experts, with routers."""
        for layer in range(layers):
            for name in ("gate", "up", "down"):
                key = f"blocks.{layer}.ffn.{name}.w"
                shapes[key] = (self.experts, *shapes[key])
            width = shapes[f"blocks.{layer}.ffn.gate.w"][1]
            shapes[f"blocks.{layer}.ffn.router.w"] = (width, self.experts)
        return shapes

    def aux_loss(self, routings: list[Routing], batch: tm.Batch) -> Any:
        """Return the weighted balance and z-losses."""
        return aux_loss(routings, batch, self)


@dataclass(frozen=True)
class Mixtral(Experts):
    """Sizes of the whole model."""

    vocab_size: int
    layers: int
    d_model: int
    heads: int
    kv_heads: int
    ffn: int
    norm_eps: float = 1e-5
    rope_base: float = 1e6
    qk_norm: bool = False

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter by name."""
        dense = tm.LlamaConfig(
            self.vocab_size, self.layers, self.d_model, self.heads, self.kv_heads, self.ffn
        )
        shapes = tm.parameter_shapes(dense)
        for layer in range(self.layers if self.qk_norm else 0):
            shapes |= {f"blocks.{layer}.attn.{m}_norm.gain": (self.d_model // self.heads,) for m in "qk"}
        return self.with_experts(shapes, self.layers)

    def logits(self, p: tm.Params, batch: tm.Batch) -> Tensor:
        """Return logits [B, T, V]."""
        return route(p, batch, self)[0]

    def route(self, p: tm.Params, batch: tm.Batch) -> tuple[Tensor, list[Routing]]:
        """Return (logits, the routing of every layer)."""
        return route(p, batch, self)


def mixture(p: tm.Params, part: str, m: Tensor, batch: tm.Batch, cfg: Experts) -> tuple[Tensor, Routing]:
    """Return (MoE(m), its routing) with the parameters `<part>router.w`, `<part>gate.w`, ... ."""
    z = batch.named(part + "router.logits", m @ p[part + "router.w"])
    prob = z.softmax(-1)
    chosen = torch.argsort(-prob.detach(), dim=-1, stable=True)[..., : cfg.top_k]
    picked = prob.gather(-1, chosen)
    gates = picked / picked.sum(-1, keepdim=True)
    stay = torch.from_numpy(
        numpy_moe.kept(
            chosen.numpy(),
            gates.detach().numpy(),
            cfg.experts,
            cfg.capacity_factor,
            cfg.capacity_scope,
            cfg.drop_policy,
        )
    )
    given = batch.named(part + "router.gates", gates * stay)
    taken = batch.named(part + "router.choices", torch.where(stay, chosen, -1))
    weight = (F.one_hot(taken.clamp(min=0), cfg.experts) * given[..., None]).sum(-2)  # [B, T, E]
    y = torch.zeros_like(m)
    for e in range(cfg.experts):
        inner = F.silu(m @ p[part + "gate.w"][e]) * (m @ p[part + "up.w"][e])
        y = y + weight[..., e, None] * (inner @ p[part + "down.w"][e])
    if cfg.passthrough:
        y = y + (~stay).all(-1)[..., None] * m
    return batch.named(part + "out", y), Routing(z, chosen)


def route(p: tm.Params, batch: tm.Batch, cfg: Mixtral) -> tuple[Tensor, list[Routing]]:
    """Return (logits [B, T, V], the routing of every layer)."""
    x, routings = batch.named("embed.out", p["embed"][batch.tokens]), []
    for layer in range(cfg.layers):
        b, f = f"blocks.{layer}.", f"blocks.{layer}.ffn."
        x = batch.named(b + "mid", x + tm.llama_attention(p, x, batch, cfg, b + "attn."))
        m = batch.named(f + "in", tm.rms_norm(x, p[f + "norm.gain"], cfg.norm_eps))
        y, routing = mixture(p, f, m, batch, cfg)
        x = batch.named(b + "out", x + y)
        routings.append(routing)
    x = batch.named("final_norm.out", tm.rms_norm(x, p["final_norm.gain"], cfg.norm_eps))
    return x @ p["head"].T, routings


def aux_loss(routings: list[Routing], batch: tm.Batch, cfg: Experts) -> Any:
    """Return the weighted balance and z-losses over the tokens that are not padding."""
    counts = torch.ones_like(batch.tokens, dtype=torch.bool)
    for given in (batch.segments, batch.key_mask):
        counts = counts if given is None else counts & (given != 0)
    n, E = counts.sum(), cfg.experts
    mean = [r.z.softmax(-1)[counts].mean(0) for r in routings]
    share = [F.one_hot(r.chosen, E)[counts].sum((0, 1)) / n for r in routings]
    z = sum(r.z[counts].logsumexp(-1).square().mean() for r in routings)
    if cfg.aux_form == "pooled":
        balance = E * (torch.stack(mean).mean(0) * torch.stack(share).mean(0)).sum()
    else:
        balance = sum(E * (m * s / cfg.top_k).sum() for m, s in zip(mean, share, strict=True))
    return cfg.aux_coef * balance + cfg.z_coef * z
