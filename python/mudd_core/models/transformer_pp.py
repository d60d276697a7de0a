"""Transformer++ (Llama, Mistral, Qwen2, Qwen3, Gemma 3, SmolLM3, OLMo, Phi-3): RMSNorm, RoPE, SwiGLU, grouped heads.

By option: biases, norms of each query and key head, norms after each branch, scaled rotary frequencies, sliding windows
with another RoPE theta, GeGLU, scaled embeddings.

Maths: docs/maths/transformer.md, 2. Shape letters: B samples, T positions, D width, H query heads, G key and
value heads, hd head width, F feed-forward width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mudd_core import nn, ops
from mudd_core.config.families import MixtralConfig, head_width, kv_heads
from mudd_core.config.families import TransformerPPConfig as Config
from mudd_core.graph.recording import Like
from mudd_core.models.attention import Rotation, attend
from mudd_core.models.hidden import Batch, Cache, Hidden
from mudd_core.models.ngrams import NgramRows

__all__ = ["Config", "model"]


def model(config: Config, batch: Batch, cache: Cache | None = None) -> Hidden:
    """Return the final states for token ids."""
    std = config.init_std
    scale = config.embedding_scale()
    x_BTD = nn.embedding(batch.inputs, "embed", config.vocab_size, config.d_model, std=std, scale=scale)
    x_BTD = nn.sow("embed.out", x_BTD)
    ngrams = NgramRows(config, batch, cache)
    for layer in range(config.n_layer):
        x_BTD = ngrams.added(x_BTD, layer)
        with nn.part(f"blocks.{layer}"):
            options = AttentionOptions.of(config, layer)
            x_BTD = nn.sow("mid", attention(config, x_BTD, batch, cache, layer, options))
            x_BTD = nn.sow("out", feed_forward(config, x_BTD))
    h_BTD = nn.rms_norm(x_BTD, "final_norm", eps=config.norm_eps, gain_offset=config.gain_offset)
    return Hidden(nn.sow("final_norm.out", h_BTD), nn.head(config, std=std))


@dataclass(frozen=True)
class AttentionOptions:
    """The optional features of the attention of a layer."""

    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    window: int = 0
    rotation: Rotation | None = field(default_factory=Rotation)  # None: no rotary positions
    scale: float = 0.0  # of the scores; 0: 1 / sqrt(hd)
    gain_offset: float = 0.0
    is_qk_norm_whole: bool = False
    is_normed_before: bool = True
    is_normed_after: bool = False  # before the output is added to the residual stream

    @classmethod
    def of(cls, config: Config, layer: int) -> AttentionOptions:
        """Return the options of a layer, counted from 0."""
        biased, window = config.attn_bias, config.layer_window(layer)
        return cls(
            biased or config.qkv_bias,
            biased,
            config.qk_norm,
            window,
            cls._rotation(config, bool(window)) if config.has_rope(layer) else None,
            config.score_scale(),
            config.gain_offset,
            config.qk_norm_whole,
            config.is_normed_before,
            config.is_normed_after,
        )

    @staticmethod
    def _rotation(config: Config, is_windowed: bool) -> Rotation:
        if is_windowed and config.rope_local_base:
            return Rotation(base=config.rope_local_base, fraction=config.rope_fraction)
        return Rotation(
            base=config.rope_base,
            fraction=config.rope_fraction,
            scaling=config.rope_scaling,
            factor=config.rope_factor,
            low_freq=config.rope_low_freq,
            high_freq=config.rope_high_freq,
            original=config.rope_original_len,
        )


PLAIN = AttentionOptions()


def attention(
    config: Config | MixtralConfig,
    x_BTD: Like,
    batch: Batch,
    cache: Cache | None,
    layer: int,
    options: AttentionOptions = PLAIN,
) -> Like:
    """Return x + Attn(rms_norm(x))."""
    heads, groups, width, std = config.n_head, kv_heads(config), head_width(config), config.init_std
    with nn.part("attn"):
        offset, eps = options.gain_offset, config.norm_eps
        a_BTD = x_BTD
        if options.is_normed_before:
            a_BTD = nn.rms_norm(x_BTD, "norm", eps=eps, gain_offset=offset)
        a_BTD = nn.sow("in", a_BTD)
        q, k, v = (
            nn.sow(name, nn.linear(a_BTD, name, count * width, std=std, bias=options.qkv_bias))
            for name, count in (("q", heads), ("k", groups), ("v", groups))
        )
        if options.qk_norm:
            pieces = (1, 1) if options.is_qk_norm_whole else (heads, groups)
            q = nn.head_norm(q, "q_norm", pieces[0], eps=eps, gain_offset=offset)
            k = nn.head_norm(k, "k_norm", pieces[1], eps=eps, gain_offset=offset)
        if options.rotation is not None:
            rotation: Rotation = {"base": config.rope_base, **options.rotation}
            longest = batch.max_positions(config)
            q, k = (
                ops.rope(x, batch.positions, n_head=n, max_positions=longest, **rotation)
                for x, n in ((q, heads), (k, groups))
            )
        o = attend(
            q,
            k,
            v,
            batch,
            cache,
            layer,
            n_head=heads,
            n_kv_head=groups,
            scale=options.scale,
            window=options.window,
        )

        def projected(residual: Like | None) -> Like:
            return nn.linear(o, "o", config.d_model, std=std, bias=options.o_bias, residual=residual)

        if options.is_normed_after:
            return normed_branch(projected, x_BTD, eps=eps, gain_offset=offset)
        return nn.branch("out", x_BTD, projected)


def normed_branch(make: Callable[[None], Like], x_BTD: Like, *, eps: float, gain_offset: float) -> Like:
    """Return x + rms_norm(make(None))."""

    def normed(residual: Like | None) -> Like:
        y_BTD = nn.rms_norm(make(None), "post_norm", eps=eps, gain_offset=gain_offset)
        return y_BTD if residual is None else ops.add(residual, y_BTD)

    return nn.branch("out", x_BTD, normed)


def feed_forward(config: Config, x_BTD: Like) -> Like:
    """Return x + (act(f Wgate) * (f Wup)) Wdown with f = rms_norm(x)."""
    std, biased, eps, offset = config.init_std, config.mlp_bias, config.norm_eps, config.gain_offset
    with nn.part("ffn"):
        f_BTD = x_BTD
        if config.is_normed_before:
            f_BTD = nn.rms_norm(x_BTD, "norm", eps=eps, gain_offset=offset)
        f_BTD = nn.sow("in", f_BTD)
        gate_BTF, up_BTF = (
            nn.sow(name, nn.linear(f_BTD, name, config.d_ff, std=std, bias=biased)) for name in ("gate", "up")
        )
        u_BTF = nn.sow("inner", ops.glu(gate_BTF, up_BTF, activation=config.activation))

        def projected(residual: Like | None) -> Like:
            return nn.linear(u_BTF, "down", config.d_model, std=std, bias=biased, residual=residual)

        if config.is_normed_after:
            return normed_branch(projected, x_BTD, eps=eps, gain_offset=offset)
        return nn.branch("out", x_BTD, projected)
