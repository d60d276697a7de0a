"""GPT-2: LayerNorm, learned positions, gelu_new (tanh form), biases, tied head, dropout.

By option GPT-NeoX (Pythia): rotary positions in a fraction of each head, parallel blocks.

Maths: docs/maths/transformer.md, 3 (the model of the transformers library).
"""

from __future__ import annotations

from mudd_core import nn, ops
from mudd_core.config.families import GPT2Config as Config
from mudd_core.config.families import head_width, kv_heads
from mudd_core.graph.recording import Like
from mudd_core.models.attention import attend
from mudd_core.models.hidden import Batch, Cache, Hidden
from mudd_core.models.ngrams import NgramRows

__all__ = ["Config", "model"]


def model(config: Config, batch: Batch, cache: Cache | None = None) -> Hidden:
    """Return the final states for token ids."""
    std = config.init_std
    x_BTD = nn.embedding(batch.inputs, "embed", config.vocab_size, config.d_model, std=std)
    if config.positions == "learned":
        x_BTD = nn.positions(x_BTD, "pos_embed", config.max_seq_len, std=std, given=batch.positions)
    x_BTD = nn.sow("embed.out", dropped(config.embd_dropout, "embed", x_BTD))
    ngrams = NgramRows(config, batch, cache)
    for layer in range(config.n_layer):
        x_BTD = ngrams.added(x_BTD, layer)
        with nn.part(f"blocks.{layer}"):
            mid_BTD = nn.sow("mid", attention(config, x_BTD, batch, cache, layer))
            read_BTD = x_BTD if config.parallel else mid_BTD
            x_BTD = nn.sow("out", feed_forward(config, read_BTD, mid_BTD))
    h_BTD = nn.layer_norm(x_BTD, "final_norm", eps=config.norm_eps)
    return Hidden(nn.sow("final_norm.out", h_BTD), nn.head(config, std=std))


def attention(config: Config, x_BTD: Like, batch: Batch, cache: Cache | None, layer: int) -> Like:
    """Return x + Attn(layer_norm(x))."""
    heads, groups, width, std = config.n_head, kv_heads(config), head_width(config), config.init_std
    with nn.part("attn"):
        a_BTD = nn.sow("in", nn.layer_norm(x_BTD, "norm", eps=config.norm_eps))
        q, k, v = (
            nn.sow(name, nn.linear(a_BTD, name, count * width, std=std, bias=config.attn_bias))
            for name, count in (("q", heads), ("k", groups), ("v", groups))
        )
        if config.positions == "rotary":
            q, k = (rotated(config, x, n, batch) for x, n in ((q, heads), (k, groups)))
        o = attend(
            q,
            k,
            v,
            batch,
            cache,
            layer,
            n_head=heads,
            n_kv_head=groups,
            scale=config.score_scale(layer),
            dropout=config.attn_dropout,
            purpose=f"dropout.{nn.prefix()}.scores",
        )
        return to_residual(config, o, "o", x_BTD, bias=config.attn_bias)


def rotated(config: Config, x: Like, heads: int, batch: Batch) -> Like:
    """Return queries or keys with rotary positions."""
    made: Like = ops.rope(
        x,
        batch.positions,
        n_head=heads,
        base=config.rope_base,
        fraction=config.rope_fraction,
        max_positions=batch.max_positions(config),
    )
    return made


def feed_forward(config: Config, x_BTD: Like, residual_BTD: Like) -> Like:
    """Return residual + act(layer_norm(x) Wup + b) Wdown + b."""
    with nn.part("ffn"):
        f_BTD = nn.sow("in", nn.layer_norm(x_BTD, "norm", eps=config.norm_eps))
        u_BTF = nn.activated(
            config.activation,
            lambda activation: nn.linear(
                f_BTD, "up", config.d_ff, std=config.init_std, bias=True, activation=activation
            ),
        )
        return to_residual(config, u_BTF, "down", residual_BTD)


def to_residual(config: Config, h: Like, name: str, x_BTD: Like, *, bias: bool = True) -> Like:
    """Return x + dropout(h W + b)."""
    rate, std = config.resid_dropout, config.residual_std()
    place = f"{nn.prefix()}.{name}"

    def made(residual: Like | None) -> Like:
        y = nn.linear(h, name, config.d_model, std=std, bias=bias, residual=None if rate else residual)
        return dropped(rate, place, y, residual) if rate else y

    return nn.branch("out", x_BTD, made)


def dropped(rate: float, place: str, x: Like, residual: Like | None = None) -> Like:
    """Return residual + dropout(x), with random draws keyed by the place in the model; rate 0 drops nothing."""
    made: Like = ops.dropout(x, residual, rate=rate, purpose=f"dropout.{place}") if rate else x
    return made
