"""The muP transformer: pre-norm, no learned multipliers; initial values and learning rates depend on the width.

Maths: docs/maths/mup.md (mu-Transformer's code; Yang et al. 2022, table 3). Shape letters: B samples, T
positions, D width, H query heads, G key and value heads, hd head width, F feed-forward width.

Two limits compared with the original. Activations are swiglu and the elementwise ones of jax.nn (act_square applies to
relu alone). Sampling ends at a full context, while the original continues in a ring (docs/decisions/graph.md).
"""

from __future__ import annotations

from mudd_core import nn, ops
from mudd_core.config.families.mup import POINTWISE
from mudd_core.config.families.mup import MupConfig as Config
from mudd_core.graph.recording import Like
from mudd_core.models.attention import attend
from mudd_core.models.hidden import Batch, Cache, Hidden
from mudd_core.models.ngrams import NgramRows

__all__ = ["Config", "model"]

_ACTIVATIONS = {"relu": "relu", "sqrelu": "squared_relu", "gelu": "gelu_tanh", "silu": "silu"}


def model(config: Config, batch: Batch, cache: Cache | None = None) -> Hidden:
    """Return the final states for token ids."""
    x_BTD = nn.embedding(batch.inputs, "embed", config.vocab_size, config.d_model, std=1.0)
    if config.e_norm:
        x_BTD = norm(config, x_BTD, "embed_norm")
    x_BTD = nn.sow("embed.out", x_BTD)
    ngrams = NgramRows(config, batch, cache)
    for layer in range(config.n_layer):
        x_BTD = ngrams.added(x_BTD, layer)
        with nn.part(f"blocks.{layer}"):
            x_BTD = nn.sow("mid", attention(config, x_BTD, batch, cache, layer))
            x_BTD = nn.sow("out", feed_forward(config, x_BTD))
    h_BTD = norm(config, x_BTD, "final_norm")
    std = {"mup": 1.0 / config.d_model, "sp": config.d_model**-0.5, "zero": 0.0}[config.u_init]
    head = nn.unembedding("head", config.vocab_size, config.d_model, std=std)
    bias = nn.bias("head_bias", config.vocab_size) if config.proj_biases else None
    return Hidden(nn.sow("final_norm.out", h_BTD), head, bias=bias)


def norm(config: Config, x: Like, name: str, heads: int = 1) -> Like:
    """Return RMSNorm over the last axis (of each head), with the kind of gain that the config sets."""
    if not config.norm_gains:
        gain = None
    else:
        width = 1 if config.norm_gains_type == "scalar" else x.shape[-1] // heads
        gain = nn.parameter(f"{name}.gain", (width,), role="gain", fan_in=width, fan_out=width, init="ones")
    with nn.part(name if config.norm_gains else ""):
        made: Like = ops.rms_norm(x, gain, eps=config.norm_eps, heads=heads)
    return made


def linear(
    config: Config,
    x: Like,
    name: str,
    width: int,
    *,
    zero: bool = False,
    activation: str = "none",
    residual: Like | None = None,
) -> Like:
    """Return act(x W (+ b)) + residual; W is normal with standard deviation fan-in^-1/2, or zero."""
    std, bias = 0.0 if zero else x.shape[-1] ** -0.5, config.proj_biases
    return nn.linear(x, name, width, std=std, bias=bias, activation=activation, residual=residual)


def attention(config: Config, x_BTD: Like, batch: Batch, cache: Cache | None, layer: int) -> Like:
    """Return x + Attn(rms_norm(x))."""
    heads, groups, width = config.n_head, config.n_kv_head, config.d_head
    with nn.part("attn"):
        a_BTD = nn.sow("in", norm(config, x_BTD, "norm"))
        q = nn.sow("q", linear(config, a_BTD, "q", heads * width, zero=config.q_init == "zero"))
        k = nn.sow("k", linear(config, a_BTD, "k", groups * width))
        v = nn.sow("v", linear(config, a_BTD, "v", groups * width))
        if config.qk_norm:
            q, k = norm(config, q, "q_norm", heads), norm(config, k, "k_norm", groups)
        if config.rotary_base:
            base, longest = config.rotary_base, batch.max_positions(config)
            q = ops.rope(q, batch.positions, n_head=heads, base=base, max_positions=longest)
            k = ops.rope(k, batch.positions, n_head=groups, base=base, max_positions=longest)
        o = attend(
            q,
            k,
            v,
            batch,
            cache,
            layer,
            n_head=heads,
            n_kv_head=groups,
            scale=config.scale,
            activation=config.attn_act_name,
            divisor=config.max_seq_len,
            eps=config.norm_eps,
        )
        zero = config.r_init == "zero"
        return nn.branch(
            "out",
            x_BTD,
            lambda residual: linear(config, o, "o", config.d_model, zero=zero, residual=residual),
        )


def feed_forward(config: Config, x_BTD: Like) -> Like:
    """Return x + act(f Wup) Wdown with f = rms_norm(x); swiglu: x + (silu(f Wgate) * (f Wup)) Wdown."""
    with nn.part("ffn"):
        f_BTD = nn.sow("in", norm(config, x_BTD, "norm"))
        if config.ff_act_name == "swiglu":
            gate_BTF, up_BTF = (
                nn.sow(name, linear(config, f_BTD, name, config.d_ff)) for name in ("gate", "up")
            )
            u_BTF = nn.sow("inner", ops.glu(gate_BTF, up_BTF, activation="silu"))
        elif config.ff_act_name in POINTWISE:
            h_BTF = nn.sow("up", linear(config, f_BTD, "up", config.d_ff))
            u_BTF = nn.sow("inner", ops.activation(h_BTF, activation=config.ff_act_name))
        else:
            u_BTF = nn.activated(
                _ACTIVATIONS[config.ff_act_name],
                lambda activation: linear(config, f_BTD, "up", config.d_ff, activation=activation),
            )
        zero = config.r_init == "zero"
        return nn.branch(
            "out",
            x_BTD,
            lambda residual: linear(config, u_BTF, "down", config.d_model, zero=zero, residual=residual),
        )


_WHOLE = {
    "embed": "w_e",
    "head": "w_u",
    "head_bias": "b_u",
    "embed_norm.gain": "g_e",
    "final_norm.gain": "g_u",
}
_MATRICES = {
    "attn.q": "aq",
    "attn.k": "ak",
    "attn.v": "av",
    "attn.o": "ao",
    "ffn.gate": "fi",
    "ffn.up": "fi",
    "ffn.down": "fo",
}
_GAINS = {"attn.norm": "g_a", "ffn.norm": "g_f", "attn.q_norm": "g_aq", "attn.k_norm": "g_ak"}


def original_name(ours: str) -> tuple[str, int | None]:
    """Return the original's name of our parameter, and its layer; None as the layer of one that is in no block."""
    if ours in _WHOLE:
        return _WHOLE[ours], None
    _, layer, part = ours.split(".", 2)
    owner, _, kind = part.rpartition(".")
    return _GAINS[owner] if kind == "gain" else f"{kind}_{_MATRICES[owner]}", int(layer)
