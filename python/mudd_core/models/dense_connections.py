"""The inputs of MUDDFormer blocks: mixtures of all states so far (docs/maths/muddformer.md).

State 0 is the embedding, state n + 1 the output of block n. One fused op mixes the states after a block into the
query, key, value and residual inputs of the next one. Shape letters: B samples, T positions, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mudd_core import nn, ops
from mudd_core.config.families import MUDDFormerConfig as Config
from mudd_core.graph.recording import Like, Value
from mudd_core.models.unfused import mixed_streams, stream_weights

__all__ = ["Streams", "captured_weights", "divided", "final", "norm", "source", "undivided"]

_POST_GAIN = 1e-3  # initial gain of the norm of a residual mixture


@dataclass(frozen=True)
class Streams:
    """Inputs of a block [B, T, D]: query, key and value are normalised, the residual is not."""

    q: Like
    k: Like
    v: Like
    r: Like


def captured_weights(config: Config, sown: Mapping[str, Value]) -> dict[int, Value]:
    """Return the dynamic weights [B, T, C l] of each mixture, by layer, from the values of a capture."""
    names = {layer: f"blocks.{layer}.mix.dynamic_weights" for layer in range(config.n_layer)}
    return {layer: sown[name] for layer, name in names.items() if name in sown}


def source(config: Config, x_BTD: Like, state: int) -> Like:
    """Return the state as mixtures read it: with prenorm, normalised once for all of them."""
    if not config.prenorm or config.mix == "none":
        return x_BTD
    with nn.part(f"states.{state}"):
        return nn.rms_norm(x_BTD, "norm", eps=config.norm_eps)


def norm(config: Config, x: Like, name: str) -> Like:
    """Apply the norm of the block's kind."""
    make = nn.rms_norm if config.block == "llama" else nn.layer_norm
    return make(x, name, eps=config.norm_eps)


def undivided(config: Config, x_BTD: Like, layer: int) -> Streams:
    """Let block `layer` read x as query, key, value and residual."""
    with nn.part(f"blocks.{layer}.attn"):
        if config.single or (layer == 0 and config.first_norms == 1):
            a_BTD = norm(config, x_BTD, "norm")
            return Streams(a_BTD, a_BTD, a_BTD, x_BTD)
        q, k, v = (norm(config, x_BTD, f"norm_{c}") for c in "qkv")
        return Streams(q, k, v, x_BTD)


def divided(config: Config, states: list[Like], x_BTD: Like, layer: int) -> Streams:
    """Mix the states into the inputs of the block after `layer`."""
    if not config.sources(layer):
        return undivided(config, x_BTD, layer + 1)
    fused = config.block == "llama" and not config.single
    with nn.part(f"blocks.{layer + 1}.attn"):
        gains = [_gain(f"norm_{c}.gain", x_BTD) for c in config.streams if c != "r"] if fused else []
    mixed = _mixtures(config, states, x_BTD, layer, gains)
    made = dict(zip(config.streams, mixed, strict=True))
    if config.single:
        return undivided(config, made["x"], layer + 1)
    with nn.part(f"blocks.{layer + 1}.attn"):
        q, k, v = (
            made[c] if fused and c in made else norm(config, made.get(c, x_BTD), f"norm_{c}") for c in "qkv"
        )
    return Streams(q, k, v, made.get("r", x_BTD))


def final(config: Config, states: list[Like], x_BTD: Like) -> Like:
    """Return the normalised states for the head, after the last mixture; its op also computes the norm if it can."""
    last = config.n_layer - 1
    if config.sources(last):
        if config.block == "llama" and not config.postnorm:
            return _mixtures(config, states, x_BTD, last, [_gain("final_norm.gain", x_BTD)])[0]
        x_BTD = _mixtures(config, states, x_BTD, last, [])[0]
    return norm(config, x_BTD, "final_norm")


def _mixtures(
    config: Config, states: list[Like], x_BTD: Like, layer: int, gains: list[Like]
) -> tuple[Like, ...]:
    """Return the streams of the mixture after block `layer`; the first ones are normalised with `gains`."""
    chosen = [states[j] for j in config.sources(layer)]
    count = config.mixtures(layer)
    last = layer == config.n_layer - 1
    residual = config.postnorm and (config.last_norm if last else config.streams[-1] in "rx")
    zero = config.prenorm and config.postnorm  # with postnorm the newest state is added
    with nn.part(f"blocks.{layer}.mix"):
        w1, w2, generator_gain = _generator(config, x_BTD, layer, count * len(chosen))
        bias = nn.parameter(
            "bias",
            (count, len(chosen)),
            role="bias",
            fan_in=len(chosen),
            fan_out=count,
            init="zeros" if zero else "last_column",
        )
        if residual:
            gains = [*gains, _gain("post_gain", x_BTD, init="constant", init_scale=_POST_GAIN)]

        def fused() -> tuple[Like, ...]:
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

        def streams(weights: Like) -> tuple[Like, ...]:
            return _unfused(config, mixed_streams(weights, chosen), x_BTD, gains, residual)

        def of_weights(z: Like | None) -> Like:
            return stream_weights(z, bias, x_BTD)

        if w1 is None or w2 is None:
            return nn.sow_fused("weights", fused, lambda: of_weights(None), streams)
        return nn.sow_fused(
            "dynamic_weights",
            fused=lambda: nn.sow_fused(
                "weights", fused, lambda: of_weights(_dynamic(config, x_BTD, w1, w2, generator_gain)), streams
            ),
            make=lambda: _dynamic(config, x_BTD, w1, w2, generator_gain),
            rest=lambda z: streams(nn.sow("weights", of_weights(z))),
        )


def _dynamic(config: Config, x_BTD: Like, w1: Like, w2: Like, gain: Like | None) -> Like:
    """Return the dynamic weights [B, T, C l], computed by separate ops."""
    u_BTD = ops.rms_norm(x_BTD, gain, eps=config.norm_eps)
    made: Like = ops.linear(ops.linear(u_BTD, w1, activation=config.activation), w2)
    return made


def _unfused(
    config: Config, mixed: tuple[Like, ...], x_BTD: Like, gains: Sequence[Like], residual: bool
) -> tuple[Like, ...]:
    """Return the streams for the plain sums of states: add the newest state and apply the norms (ops.depth_mix)."""
    streams = []
    for c, y in enumerate(mixed):
        late = residual and c == len(mixed) - 1
        y = ops.add(y, x_BTD) if config.postnorm and not late else y
        y = ops.rms_norm(y, gains[c], eps=config.norm_eps) if c < len(gains) else y
        streams.append(ops.add(y, x_BTD) if late else y)
    return tuple(streams)


def _generator(
    config: Config, x_BTD: Like, layer: int, columns: int
) -> tuple[Like | None, Like | None, Like | None]:
    """Return the two matrices that compute the dynamic weights, and the gain of their norm; None if absent."""
    if config.mix != "dynamic":
        return None, None, None
    width, hidden = x_BTD.shape[-1], config.generator_width(layer)
    w1 = nn.parameter(
        "w1",
        (width, hidden),
        role="mix",
        fan_in=width,
        fan_out=hidden,
        init="normal",
        init_scale=width**-0.5,
    )
    w2 = nn.parameter("w2", (hidden, columns), role="mix", fan_in=hidden, fan_out=columns, init="zeros")
    gain = _gain("gain", x_BTD) if config.prenorm else None
    return w1, w2, gain


def _gain(name: str, x: Like, init: str = "ones", init_scale: float = 0.0) -> Like:
    width = x.shape[-1]
    return nn.parameter(
        name, (width,), role="gain", fan_in=width, fan_out=width, init=init, init_scale=init_scale
    )
