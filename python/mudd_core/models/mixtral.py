"""Mixtral: Transformer++ whose feed-forward block is a mixture of experts behind a top-k router.

Maths: docs/maths/moe.md; losses and capacity as the MLPerf reference and transformers. Shape letters: B
samples, T positions, D width, E experts, k experts of a token, F inner width of an expert.
"""

from __future__ import annotations

from typing import Any

from mudd_core import nn, ops
from mudd_core.config.families import MixtralConfig as Config
from mudd_core.models.hidden import Aux, Batch, Cache, Hidden
from mudd_core.models.transformer_pp import attention

__all__ = ["Config", "model"]


def model(config: Config, batch: Batch, cache: Cache | None = None) -> Hidden:
    """Token ids to final states, and the routers' statistics for the auxiliary losses."""
    std = config.init_std
    x_BTD = nn.embedding(batch.inputs, "embed", config.vocab_size, config.d_model, std=std)
    metrics = []
    for layer in range(config.n_layer):
        with nn.part(f"blocks.{layer}"):
            x_BTD = attention(config, x_BTD, batch, cache, layer)
            x_BTD, of_layer = experts(config, x_BTD, batch, cache, layer)
            metrics.append(of_layer)
    h_BTD = nn.rms_norm(x_BTD, "final_norm", eps=config.norm_eps)
    role, name = ("embedding", "embed") if config.tie_embeddings else ("head", "head")
    head = nn.unembedding(name, config.vocab_size, config.d_model, std=std, role=role)
    return Hidden(h_BTD, head, aux=Aux(metrics, losses(config)))


def losses(config: Config) -> dict[str, Any]:
    """Options of ops.moe_balance."""
    return {
        "form": config.aux_form,
        "scope": config.aux_scope,
        "balance": config.aux_coef,
        "z": config.z_coef,
        "top_k": config.top_k,
    }


def experts(config: Config, x_BTD: Any, batch: Batch, cache: Cache | None, layer: int) -> tuple[Any, Any]:
    """(x + MoE(rms_norm(x)), the router's statistics).

    Decoding over a cache drops nothing: how full an expert of the whole sequence is cannot be known there.
    """
    E, D, F, std = config.n_expert, config.d_model, config.d_ff, config.init_std
    with nn.part("ffn"):
        m_BTD = nn.rms_norm(x_BTD, "norm", eps=config.norm_eps)
        with nn.part("router"):
            router = nn.parameter(
                "w", (D, E), role="router", fan_in=D, fan_out=E, init="normal", init_scale=std
            )
        gates, chosen, metrics = ops.moe_route(
            m_BTD,
            router,
            batch.segments,
            batch.key_mask,
            top_k=config.top_k,
            capacity_factor=max(0.0, config.capacity_factor) if cache is None else 0.0,
            capacity_scope=config.capacity_scope,
            drop_policy=config.drop_policy,
            jitter=config.jitter,
            layer=layer,
        )
        gate, up, down = (
            nn.stack(name, E, fan_in, fan_out, std=std)
            for name, fan_in, fan_out in (("gate", D, F), ("up", D, F), ("down", F, D))
        )
        y_BTD = ops.grouped_gemm(m_BTD, gates, chosen, gate, up, down, x_BTD, full_drop=config.full_drop)
        return y_BTD, metrics
