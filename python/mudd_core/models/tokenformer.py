"""TokenFormer (Wang et al. 2024): projections and feed-forward are attention to learned parameter tokens, the slots.

Maths: docs/maths/tokenformer.md. The defaults match the authors' JAX program; with the fields of its section 2.2 the
model is their NeoX program, and with `block="dense"` their baseline (section 3). Shape letters: B samples, T positions,
D width, n slots.
"""

from __future__ import annotations

import math

from mudd_core import nn, ops
from mudd_core.config.families.heads import head_width
from mudd_core.config.families.tokenformer import TokenFormerConfig as Config
from mudd_core.graph.recording import Like
from mudd_core.models.attention import attend
from mudd_core.models.hidden import Batch, Cache, Hidden
from mudd_core.models.ngrams import NgramRows

__all__ = ["Config", "model"]


def model(config: Config, batch: Batch, cache: Cache | None = None) -> Hidden:
    """Return the final states for token ids."""
    std = 1.0 if config.init == "jax" else 0.02
    x_BTD = nn.embedding(batch.inputs, "embed", config.vocab_size, config.d_model, std=std)
    x_BTD = nn.sow("embed.out", with_positions(config, x_BTD, batch, std))
    ngrams = NgramRows(config, batch, cache)
    for layer in range(config.n_layer):
        x_BTD = ngrams.added(x_BTD, layer)
        with nn.part(f"blocks.{layer}"):
            x_BTD = nn.sow("mid", attention(config, x_BTD, batch, cache, layer))
            x_BTD = nn.sow("out", feed_forward(config, x_BTD))
    scale = config.d_model**-0.5 if config.tie_embeddings and config.normalize_logits else 1.0
    h_BTD = final_norm(config, x_BTD, scale)
    head_std = std if config.tie_embeddings else dense_std(config, config.d_model)
    head = nn.head(config, std=head_std, init=dense_init(config))
    return Hidden(nn.sow("final_norm.out", h_BTD), head)


def with_positions(config: Config, x_BTD: Like, batch: Batch, std: float) -> Like:
    """Add the position embedding to x, if the config has one."""
    if config.positions == "learned":
        return nn.positions(x_BTD, "pos_embed", config.max_seq_len, std=std, given=batch.positions)
    if config.positions == "sinusoidal":
        made: Like = ops.embedding(
            batch.positions, None, x_BTD, positions=batch.positions is None, sinusoids=config.max_seq_len
        )
        return made
    return x_BTD


def norm(config: Config, x_BTD: Like) -> Like:
    """Return the LayerNorm before a branch. Only the baseline's LayerNorm has parameters: a gain and a bias."""
    if config.block == "dense":
        return final_norm(config, x_BTD, 1.0, "norm")
    made: Like = ops.layer_norm(x_BTD, eps=config.norm_eps)
    return made


def final_norm(config: Config, x_BTD: Like, scale: float, name: str = "final_norm") -> Like:
    """Return scale ((gain_offset + gain) LN(x) + bias); the scale multiplies the logits."""
    start = "zeros" if config.gain_offset == 1 else "constant"
    return nn.layer_norm(
        x_BTD,
        name,
        eps=config.norm_eps,
        gain_offset=config.gain_offset,
        gain_init=(start, 1 - config.gain_offset),
        scale=scale,
    )


def attention(config: Config, x_BTD: Like, batch: Batch, cache: Cache | None, layer: int) -> Like:
    """Return x + DropPath(out(Attn(q, k, v))); one op computes q, k and v from the normalised x."""
    with nn.part("attn"):
        a_BTD = nn.sow("in", norm(config, x_BTD))
        q, k, v = (nn.sow(name, u) for name, u in zip("qkv", qkv(config, a_BTD), strict=True))
        if config.positions == "rotary":
            q, k = (rotated(config, u, batch) for u in (q, k))
        o = attend(q, k, v, batch, cache, layer, n_head=config.n_head, n_kv_head=config.n_head)

        def made(residual: Like | None) -> Like:
            if config.block != "dense":
                return slots(config, o, ["o"], "proj", config.d_model, residual)[0]
            std = dense_std(config, o.shape[-1])
            return nn.linear(o, "o", config.d_model, std=std, bias=True, residual=residual)

        return nn.branch("out", x_BTD, made)


def qkv(config: Config, a_BTD: Like) -> tuple[Like, ...]:
    """Return queries, keys and values [B, T, H*hd] of the normalised states."""
    width = config.n_head * head_width(config)
    if config.block == "dense":
        std = dense_std(config, config.d_model)
        return tuple(nn.linear(a_BTD, name, width, std=std, bias=True) for name in "qkv")
    return slots(config, a_BTD, ["q", "k", "v"], "qkv", width)


def rotated(config: Config, u: Like, batch: Batch) -> Like:
    """Return queries or keys; the first part of each head is rotated by its position."""
    made: Like = ops.rope(
        u,
        batch.positions,
        n_head=config.n_head,
        base=config.rope_base,
        fraction=config.rope_fraction,
        max_positions=batch.max_positions(config),
    )
    return made


def feed_forward(config: Config, x_BTD: Like) -> Like:
    """Return x + DropPath(slots(LN(x))): keys, activated scores, values, no second activation."""
    with nn.part("ffn"):
        f_BTD = nn.sow("in", norm(config, x_BTD))
        if config.block == "pattention":
            return nn.branch(
                "out", x_BTD, lambda residual: slots(config, f_BTD, [""], "ffn", config.d_model, residual)[0]
            )
        inner, init = config.inner(), dense_init(config)
        up_std, down_std = dense_std(config, config.d_model), dense_std(config, inner)
        u = nn.activated(
            config.mlp_activation,
            lambda activation: nn.linear(
                f_BTD, "up", inner, std=up_std, bias=True, activation=activation, init=init
            ),
        )
        return nn.branch(
            "out",
            x_BTD,
            lambda residual: nn.linear(
                u, "down", config.d_model, std=down_std, bias=True, residual=residual, init=init
            ),
        )


def dense_std(config: Config, fan_in: int) -> float:
    """Return the standard deviation of the baseline's matrices."""
    return fan_in**-0.5 if config.init == "jax" else 0.02


def dense_init(config: Config) -> str:
    """Return the distribution of the baseline's feed-forward matrices and of an untied head."""
    return "truncated_normal" if config.init == "jax" else "normal"


def slots(
    config: Config, x: Like, names: list[str], group: str, width: int, residual: Like | None = None
) -> tuple[Like, ...]:
    """Run one op for the projections `names` of x, each from its own slots to `width` channels (+ residual)."""
    n, bias = config.slots(group), getattr(config, f"{group}_bias")
    tokens: list[Like | None] = []
    for name in names:
        with nn.part(name):
            tokens += slot_tokens(config, n, x.shape[-1], width, bias, truncated=group == "ffn")
    result = ops.pattention(
        x,
        *tokens[:4],
        residual,
        *tokens[4:],
        norm=config.normalize_type,
        gelu=f"gelu_{config.gelu}",
        eps=config.score_eps(),
        zoom=float(config.zoom_dim * (4 if group == "ffn" else 1)),
        scale_factor=getattr(config, f"{group}_scale_factor"),
        keep_scores=config.keep_scores,
        drop_path=0.0 if residual is None else config.drop_path,
        purpose=f"drop_path.{nn.prefix()}",
    )
    return result if isinstance(result, tuple) else (result,)


def slot_tokens(
    config: Config, n: int, fan_in: int, width: int, bias: bool, truncated: bool
) -> tuple[Like | None, ...]:
    """Return keys [n, fan_in], values [n, width] and their biases [n], [width] (None if absent)."""
    jax = config.init == "jax"
    init = dense_init(config) if truncated else "normal"
    key_std = fan_in**-0.5 if jax else 0.02
    value_std = n**-0.5 if jax else 2 / (config.n_layer * math.sqrt(config.d_model))
    tokens: list[Like | None] = []
    for name, count, of, to, std in (
        ("key", fan_in, fan_in, n, key_std),
        ("value", width, n, width, value_std),
    ):
        tokens.append(
            nn.parameter(name, (n, count), role="slots", fan_in=of, fan_out=to, init=init, init_scale=std)
        )
    for name, of, to in (("key_bias", fan_in, n), ("value_bias", n, width)):
        tokens.append(
            nn.parameter(name, (to,), role="bias", fan_in=of, fan_out=to, init="zeros") if bias else None
        )
    return tuple(tokens)
