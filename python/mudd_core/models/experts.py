"""A mixture-of-experts feed-forward part with a top-k router, for every family that has one.

Maths: docs/maths/moe.md; losses and capacity as in the MLPerf reference and in transformers. Shape letters: B samples,
T positions, D width, E experts, k experts of a token, F inner width of an expert.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mudd_core import nn, ops
from mudd_core.config.families import MixtureConfig
from mudd_core.graph.recording import Like
from mudd_core.models.hidden import Aux, Batch, Cache
from mudd_core.models.unfused import router_logits

__all__ = ["auxiliary", "experts"]


def auxiliary(config: MixtureConfig, metrics: Sequence[Like]) -> Aux:
    """Return the auxiliary losses. metrics: the router's metrics of each layer."""
    return Aux(
        metrics,
        form=config.aux_form,
        scope=config.aux_scope,
        balance=config.aux_coef,
        z=config.z_coef,
        top_k=config.top_k,
    )


def experts(
    config: MixtureConfig, m_BTD: Like, residual_BTD: Like, batch: Batch, cache: Cache | None, layer: int
) -> tuple[Like, Like]:
    """Return (residual + MoE(m), the router's metrics) for the normalised states m.

    Decoding with a cache drops no token, because the load of an expert over the whole sequence is not known there.
    """
    E, D, F, std = config.n_expert, config.d_model, config.d_ff, config.init_std
    with nn.part("router"):
        router = nn.parameter("w", (D, E), role="router", fan_in=D, fan_out=E, init="normal", init_scale=std)
    gates, chosen, metrics = routed(config, m_BTD, router, batch, cache, layer)
    gate, up, down = (
        nn.stack(name, E, fan_in, fan_out, std=std)
        for name, fan_in, fan_out in (("gate", D, F), ("up", D, F), ("down", F, D))
    )

    gate_up_a, gate_up_b, scale = nn.expert_adapter("gate_up", E, D, F, parts=2)
    down_a, down_b, down_scale = nn.expert_adapter("down", E, F, D)

    def made(residual: Like | None) -> Like:
        y_BTD: Like = ops.grouped_gemm(
            m_BTD,
            gates,
            chosen,
            gate,
            up,
            down,
            residual,
            gate_up_a,
            gate_up_b,
            down_a,
            down_b,
            full_drop=config.full_drop,
            scale=scale if down_a is None else down_scale,
        )
        return y_BTD

    return nn.branch("out", residual_BTD, made), metrics


def routed(
    config: MixtureConfig, m_BTD: Like, router: Like, batch: Batch, cache: Cache | None, layer: int
) -> tuple[Like, Like, Like]:
    """Return (gates, choices [B, T, k], metrics) of the router; Model.capture names them and its `logits` [B, T, E]."""

    def route(x: Like, w: Like) -> tuple[Like, Like, Like]:
        made: tuple[Like, Like, Like] = ops.moe_route(
            x,
            w,
            batch.segments,
            batch.key_mask,
            top_k=config.top_k,
            capacity_factor=max(0.0, config.capacity_factor) if cache is None else 0.0,
            capacity_scope=config.capacity_scope,
            drop_policy=config.drop_policy,
            jitter=config.jitter,
            layer=layer,
        )
        return made

    gates, chosen, metrics = nn.sow_fused(
        "router.logits",
        fused=lambda: route(m_BTD, router),
        make=lambda: router_logits(m_BTD, router),
        rest=lambda z: route(z, np.eye(config.n_expert, dtype=np.float32)),
    )
    return nn.sow("router.gates", gates), nn.sow("router.choices", chosen), metrics
