"""Transformer++ (Llama): RMSNorm, rotary positions, SwiGLU, grouped key and value heads; biases by option.

Maths: docs/maths/transformer.md, 2. Shape letters: B samples, T positions, D width, H query heads, G key and
value heads, hd head width, F feed-forward width.
"""

from __future__ import annotations

from mudd_core import nn, ops
from mudd_core.config.families import MixtralConfig, head_width, kv_heads
from mudd_core.config.families import TransformerPPConfig as Config
from mudd_core.graph.recording import Like
from mudd_core.models.attention import attend
from mudd_core.models.hidden import Batch, Cache, Hidden

__all__ = ["Config", "model"]


def model(config: Config, batch: Batch, cache: Cache | None = None) -> Hidden:
    """Token ids to final states."""
    std = config.init_std
    x_BTD = nn.embedding(batch.inputs, "embed", config.vocab_size, config.d_model, std=std)
    x_BTD = nn.sow("embed.out", x_BTD)
    for layer in range(config.n_layer):
        with nn.part(f"blocks.{layer}"):
            x_BTD = nn.sow("mid", attention(config, x_BTD, batch, cache, layer, biased=config.attn_bias))
            x_BTD = nn.sow("out", feed_forward(config, x_BTD))
    h_BTD = nn.rms_norm(x_BTD, "final_norm", eps=config.norm_eps)
    return Hidden(nn.sow("final_norm.out", h_BTD), nn.head(config, std=std))


def attention(
    config: Config | MixtralConfig,
    x_BTD: Like,
    batch: Batch,
    cache: Cache | None,
    layer: int,
    *,
    biased: bool = False,
) -> Like:
    """x + Attn(rms_norm(x)). biased: the four projections have biases."""
    heads, groups, width, std = config.n_head, kv_heads(config), head_width(config), config.init_std
    with nn.part("attn"):
        a_BTD = nn.sow("in", nn.rms_norm(x_BTD, "norm", eps=config.norm_eps))
        q, k, v = (
            nn.sow(name, nn.linear(a_BTD, name, count * width, std=std, bias=biased))
            for name, count in (("q", heads), ("k", groups), ("v", groups))
        )
        q = ops.rope(
            q, batch.positions, n_head=heads, base=config.rope_base, max_positions=batch.max_positions(config)
        )
        k = ops.rope(
            k,
            batch.positions,
            n_head=groups,
            base=config.rope_base,
            max_positions=batch.max_positions(config),
        )
        o = attend(q, k, v, batch, cache, layer, n_head=heads, n_kv_head=groups)
        return nn.branch(
            "out",
            x_BTD,
            lambda residual: nn.linear(o, "o", config.d_model, std=std, bias=biased, residual=residual),
        )


def feed_forward(config: Config, x_BTD: Like) -> Like:
    """x + (silu(f Wgate) * (f Wup)) Wdown with f = rms_norm(x)."""
    std, biased = config.init_std, config.mlp_bias
    with nn.part("ffn"):
        f_BTD = nn.sow("in", nn.rms_norm(x_BTD, "norm", eps=config.norm_eps))
        gate_BTF, up_BTF = (
            nn.sow(name, nn.linear(f_BTD, name, config.d_ff, std=std, bias=biased)) for name in ("gate", "up")
        )
        u_BTF = nn.sow("inner", ops.glu(gate_BTF, up_BTF, activation="silu"))
        return nn.branch(
            "out",
            x_BTD,
            lambda residual: nn.linear(
                u_BTF, "down", config.d_model, std=std, bias=biased, residual=residual
            ),
        )
