"""MUDDFormer: multiway dynamic dense connections (Xiao et al. 2025, arXiv 2502.12170), and its ablations.

Maths: docs/maths/muddformer.md. dense_connections.py computes the inputs of the blocks. Shape letters: B samples, T
positions, D width, F feed-forward width.
"""

from __future__ import annotations

from mudd_core import nn, ops
from mudd_core.config.families import MUDDFormerConfig as Config
from mudd_core.config.families import head_width, kv_heads
from mudd_core.graph.recording import Like
from mudd_core.models.attention import attend
from mudd_core.models.dense_connections import Streams, divided, final, norm, source, undivided
from mudd_core.models.experts import auxiliary, experts
from mudd_core.models.hidden import Batch, Cache, Hidden
from mudd_core.models.ngrams import NgramRows

__all__ = ["Config", "model"]


def model(config: Config, batch: Batch, cache: Cache | None = None) -> Hidden:
    """Return the final states for token ids."""
    x_BTD = nn.embedding(batch.inputs, "embed", config.vocab_size, config.d_model, std=config.init_std)
    ngrams = NgramRows(config, batch, cache)
    x_BTD = ngrams.added(nn.sow("embed.out", x_BTD), 0)
    states = [source(config, x_BTD, 0)]
    inputs = undivided(config, x_BTD, 0)
    metrics: list[Like] = []
    for layer in range(config.n_layer):
        x_BTD, of_layer = block(config, inputs, batch, cache, layer)
        if of_layer is not None:
            metrics.append(of_layer)
        x_BTD = ngrams.added(x_BTD, layer + 1)
        states.append(source(config, x_BTD, layer + 1))
        if layer + 1 < config.n_layer:
            inputs = divided(config, states, x_BTD, layer)
    h_BTD = final(config, states, x_BTD)
    aux = auxiliary(config, metrics) if config.n_expert else None
    return Hidden(nn.sow("final_norm.out", h_BTD), nn.head(config, std=config.init_std), aux=aux)


def block(
    config: Config, inputs: Streams, batch: Batch, cache: Cache | None, layer: int
) -> tuple[Like, Like | None]:
    """Return (output, router metrics or None). Llama: h = r + Attn(q, k, v), h + FFN(h). Pythia: r + Attn + FFN(r)."""
    with nn.part(f"blocks.{layer}"):
        h_BTD = nn.sow("mid", attention(config, inputs, batch, cache, layer))
        with nn.part("ffn"):
            read = h_BTD if config.block == "llama" else inputs.r
            f_BTD = nn.sow("in", norm(config, read, "norm"))
            if config.n_expert:
                out_BTD, metrics = experts(config, f_BTD, h_BTD, batch, cache, layer)
            else:
                out_BTD, metrics = feed_forward(config, f_BTD, h_BTD, config.ffn_width(layer)), None
        return nn.sow("out", out_BTD), metrics


def attention(config: Config, inputs: Streams, batch: Batch, cache: Cache | None, layer: int) -> Like:
    """Return r + Attn(q, k, v)."""
    heads, groups, width = config.n_head, kv_heads(config), head_width(config)
    bias, std = config.block == "pythia", config.init_std
    with nn.part("attn"):
        inputs = Streams(*(nn.sow(f"in_{c}", getattr(inputs, c)) for c in "qkvr"))
        q = nn.sow("q", nn.linear(inputs.q, "q", heads * width, std=std, bias=bias))
        q = rotated(config, q, "q_norm", heads, batch)
        k = nn.sow("k", nn.linear(inputs.k, "k", groups * width, std=std, bias=bias))
        k = rotated(config, k, "k_norm", groups, batch)
        v = nn.sow("v", nn.linear(inputs.v, "v", groups * width, std=std, bias=bias))
        o = attend(q, k, v, batch, cache, layer, n_head=heads, n_kv_head=groups)
        return nn.branch(
            "out",
            inputs.r,
            lambda residual: nn.linear(o, "o", config.d_model, std=std, bias=bias, residual=residual),
        )


def rotated(config: Config, x: Like, name: str, heads: int, batch: Batch) -> Like:
    """Return queries or keys with rotary positions, after a norm of each head if the config sets one."""
    if config.qk_norm:
        x = nn.head_norm(x, name, heads, eps=config.norm_eps)
    made: Like = ops.rope(
        x,
        batch.positions,
        n_head=heads,
        base=config.rope_base,
        fraction=config.rope_fraction,
        max_positions=batch.max_positions(config),
    )
    return made


def feed_forward(config: Config, f_BTD: Like, residual_BTD: Like, inner: int) -> Like:
    """Return residual + (silu(f Wgate) * (f Wup)) Wdown, or residual + gelu(f Wup + b) Wdown + b."""
    std = config.init_std
    bias = config.block == "pythia"
    if bias:
        u_BTF = nn.activated(
            "gelu_erf",
            lambda activation: nn.linear(f_BTD, "up", inner, std=std, bias=True, activation=activation),
        )
    else:
        gate_BTF, up_BTF = (nn.sow(name, nn.linear(f_BTD, name, inner, std=std)) for name in ("gate", "up"))
        u_BTF = nn.sow("inner", ops.glu(gate_BTF, up_BTF, activation="silu"))
    return nn.branch(
        "out",
        residual_BTD,
        lambda residual: nn.linear(u_BTF, "down", config.d_model, std=std, bias=bias, residual=residual),
    )
