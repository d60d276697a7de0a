"""MUDDFormer: multiway dynamic dense connections (Xiao et al. 2025, arXiv 2502.12170), and its ablations.

Maths: docs/maths/muddformer.md. State 0 is the embedding, state n + 1 the output of block n. After every block
one fused op mixes all states so far into the next block's query, key, value and residual inputs; the last one into
what the head reads. Shape letters: B samples, T positions, D width, F feed-forward width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from mudd_core import nn, ops
from mudd_core.config.families import MUDDFormerConfig as Config
from mudd_core.config.families import head_width, kv_heads
from mudd_core.models.experts import auxiliary, experts
from mudd_core.models.hidden import Batch, Cache, Hidden
from mudd_core.models.transformer_pp import seen

__all__ = ["Config", "model", "watching"]

_POST_GAIN = 1e-3  # first value of the gain of a normalised residual mixture
_watched: ContextVar[dict[int, Any] | None] = ContextVar("watched", default=None)


@contextmanager
def watching() -> Iterator[dict[int, Any]]:
    """Inside: a model function also leaves the dynamic weights [B, T, C l] of each mixture here, by layer."""
    found: dict[int, Any] = {}
    token = _watched.set(found)
    try:
        yield found
    finally:
        _watched.reset(token)


@dataclass(frozen=True)
class Streams:
    """Inputs of a block [B, T, D]: query, key and value normalised, the residual as it is."""

    q: Any
    k: Any
    v: Any
    r: Any


def model(config: Config, batch: Batch, cache: Cache | None = None) -> Hidden:
    """Token ids to final states."""
    x_BTD = nn.embedding(batch.inputs, "embed", config.vocab_size, config.d_model, std=config.init_std)
    states = [source(config, x_BTD, 0)]
    inputs = undivided(config, x_BTD, 0)
    metrics = []
    for layer in range(config.n_layer):
        x_BTD, of_layer = block(config, inputs, batch, cache, layer)
        metrics.append(of_layer)
        states.append(source(config, x_BTD, layer + 1))
        if layer + 1 < config.n_layer:
            inputs = divided(config, states, x_BTD, layer)
    h_BTD = final(config, states, x_BTD)
    role, name = ("embedding", "embed") if config.tie_embeddings else ("head", "head")
    table = nn.unembedding(name, config.vocab_size, config.d_model, std=config.init_std, role=role)
    return Hidden(h_BTD, table, aux=auxiliary(config, metrics) if config.n_expert else None)


# ---- what a block reads ------------------------------------------------------------------------------------------


def source(config: Config, x_BTD: Any, state: int) -> Any:
    """The state as it enters mixtures: normalised once for all of them with prenorm."""
    if not config.prenorm or config.mix == "none":
        return x_BTD
    with nn.part(f"states.{state}"):
        return nn.rms_norm(x_BTD, "norm", eps=config.norm_eps)


def norm(config: Config, x: Any, name: str) -> Any:
    """The norm of the block's kind."""
    make = nn.rms_norm if config.block == "llama" else nn.layer_norm
    return make(x, name, eps=config.norm_eps)


def undivided(config: Config, x_BTD: Any, layer: int) -> Streams:
    """Block `layer` reads x for everything."""
    with nn.part(f"blocks.{layer}.attn"):
        if config.single or (layer == 0 and config.first_norms == 1):
            a_BTD = norm(config, x_BTD, "norm")
            return Streams(a_BTD, a_BTD, a_BTD, x_BTD)
        q, k, v = (norm(config, x_BTD, f"norm_{c}") for c in "qkv")
        return Streams(q, k, v, x_BTD)


def divided(config: Config, states: list[Any], x_BTD: Any, layer: int) -> Streams:
    """What the block behind `layer` reads: mixtures of the states."""
    if not config.sources(layer):
        return undivided(config, x_BTD, layer + 1)
    fused = config.block == "llama" and not config.single
    with nn.part(f"blocks.{layer + 1}.attn"):
        gains = [_gain(f"norm_{c}.gain", x_BTD) for c in config.streams if c != "r"] if fused else []
    mixed = mixture(config, states, x_BTD, layer, gains)
    made = dict(zip(config.streams, mixed, strict=True))
    if config.single:
        return undivided(config, made["x"], layer + 1)
    with nn.part(f"blocks.{layer + 1}.attn"):
        q, k, v = (
            made[c] if fused and c in made else norm(config, made.get(c, x_BTD), f"norm_{c}") for c in "qkv"
        )
    return Streams(q, k, v, made.get("r", x_BTD))


def final(config: Config, states: list[Any], x_BTD: Any) -> Any:
    """The normalised states for the head: of the last mixture, in whose op the norm is where it can be."""
    last = config.n_layer - 1
    if config.sources(last):
        if config.block == "llama" and not config.postnorm:
            return mixture(config, states, x_BTD, last, [_gain("final_norm.gain", x_BTD)])[0]
        x_BTD = mixture(config, states, x_BTD, last, [])[0]
    return norm(config, x_BTD, "final_norm")


def mixture(config: Config, states: list[Any], x_BTD: Any, layer: int, gains: list[Any]) -> tuple[Any, ...]:
    """The streams made after block `layer`; the first of them normalised with `gains`."""
    chosen = [states[j] for j in config.sources(layer)]
    count, width = config.mixtures(layer), x_BTD.shape[-1]
    last = layer == config.n_layer - 1
    residual = config.postnorm and (config.last_norm if last else config.streams[-1] in "rx")
    zero = config.prenorm and config.postnorm  # postnorm adds the newest state
    with nn.part(f"blocks.{layer}.mix"):
        w1 = w2 = generator_gain = None
        if config.mix == "dynamic":
            hidden, columns = config.generator_width(layer), count * len(chosen)
            w1 = nn.parameter(
                "w1",
                (width, hidden),
                role="mix",
                fan_in=width,
                fan_out=hidden,
                init="normal",
                init_scale=width**-0.5,
            )
            w2 = nn.parameter(
                "w2", (hidden, columns), role="mix", fan_in=hidden, fan_out=columns, init="zeros"
            )
            generator_gain = _gain("gain", x_BTD) if config.prenorm else None
        bias = nn.parameter(
            "bias",
            (count, len(chosen)),
            role="bias",
            fan_in=len(chosen),
            fan_out=count,
            init="zeros" if zero else "last_column",
        )
        if (watched := _watched.get()) is not None and w1 is not None:
            hidden_BTK = ops.linear(
                ops.rms_norm(x_BTD, generator_gain, eps=config.norm_eps), w1, activation=config.activation
            )
            watched[layer] = ops.linear(hidden_BTK, w2)
        if residual:
            gains = [*gains, _gain("post_gain", x_BTD, init="constant", init_scale=_POST_GAIN)]
        made = ops.depth_mix(
            bias,
            w1,
            w2,
            generator_gain,
            *(gains + [None] * (4 - len(gains))),
            x_BTD if config.prenorm else None,
            *chosen,
            direct=config.postnorm,
            post_norm=residual,
            activation=config.activation,
            eps=config.norm_eps,
            norm_eps=config.norm_eps,
        )
    return made if isinstance(made, tuple) else (made,)


def _gain(name: str, x: Any, init: str = "ones", init_scale: float = 0.0) -> Any:
    width = x.shape[-1]
    return nn.parameter(
        name, (width,), role="gain", fan_in=width, fan_out=width, init=init, init_scale=init_scale
    )


# ---- the block ---------------------------------------------------------------------------------------------------


def block(config: Config, inputs: Streams, batch: Batch, cache: Cache | None, layer: int) -> tuple[Any, Any]:
    """(output, the router's metrics or None). Llama: h = r + Attn(q, k, v), h + FFN(h). Pythia: r + Attn + FFN(r)."""
    with nn.part(f"blocks.{layer}"):
        h_BTD = attention(config, inputs, batch, cache, layer)
        with nn.part("ffn"):
            read = h_BTD if config.block == "llama" else inputs.r
            f_BTD = norm(config, read, "norm")
            if config.n_expert:
                out_BTD, metrics = experts(config, f_BTD, h_BTD, batch, cache, layer)
            else:
                out_BTD, metrics = feed_forward(config, f_BTD, h_BTD, config.ffn_width(layer)), None
        nn.sow("out", out_BTD)
        return out_BTD, metrics


def attention(config: Config, inputs: Streams, batch: Batch, cache: Cache | None, layer: int) -> Any:
    """r + Attn(q, k, v)."""
    heads, groups, width = config.n_head, kv_heads(config), head_width(config)
    bias, std = config.block == "pythia", config.init_std
    with nn.part("attn"):
        q = rotated(
            config, nn.linear(inputs.q, "q", heads * width, std=std, bias=bias), "q_norm", heads, batch
        )
        k = rotated(
            config, nn.linear(inputs.k, "k", groups * width, std=std, bias=bias), "k_norm", groups, batch
        )
        v = nn.linear(inputs.v, "v", groups * width, std=std, bias=bias)
        o = ops.attention(q, k, v, n_head=heads, n_kv_head=groups, **seen(batch, cache, layer))
        return nn.linear(o, "o", config.d_model, std=std, bias=bias, residual=inputs.r)


def rotated(config: Config, x: Any, name: str, heads: int, batch: Batch) -> Any:
    """Queries or keys, normalised by head where asked, at their positions."""
    if config.qk_norm:
        width = head_width(config)
        gain = nn.parameter(f"{name}.gain", (width,), role="gain", fan_in=width, fan_out=width, init="ones")
        x = ops.rms_norm(x, gain, eps=config.norm_eps, heads=heads)
    return ops.rope(
        x,
        batch.positions,
        n_head=heads,
        base=config.rope_base,
        fraction=config.rope_fraction,
        max_positions=batch.max_positions(config),
    )


def feed_forward(config: Config, f_BTD: Any, residual_BTD: Any, inner: int) -> Any:
    """residual + (silu(f Wgate) * (f Wup)) Wdown, or residual + gelu(f Wup + b) Wdown + b."""
    std = config.init_std
    if config.block == "pythia":
        u_BTF = nn.linear(f_BTD, "up", inner, std=std, bias=True, activation="gelu_erf")
        return nn.linear(u_BTF, "down", config.d_model, std=std, bias=True, residual=residual_BTD)
    gate_BTF = nn.linear(f_BTD, "gate", inner, std=std)
    up_BTF = nn.linear(f_BTD, "up", inner, std=std)
    return nn.linear(
        ops.glu(gate_BTF, up_BTF, activation="silu"), "down", config.d_model, std=std, residual=residual_BTD
    )
