"""Building blocks of model functions: declare parameters by name and role, call ops.

Names and roles follow contracts 10 and 11: weights are [in, out] for y = x W, embedding and head are [V, D]. Nothing
here computes; the formulas are in the docstrings of ops/ and in docs/maths/.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from mudd_core import ops
from mudd_core.config.families import TiedHead
from mudd_core.graph.recording import Declaration, Like, current, part, prefix

__all__ = [
    "bias",
    "embedding",
    "head",
    "layer_norm",
    "linear",
    "parameter",
    "part",
    "positions",
    "prefix",
    "rms_norm",
    "sow",
    "stack",
    "unembedding",
]


def parameter(name: str, shape: tuple[int, ...], **declaration: Unpack[Declaration]) -> Like:
    """The parameter `<part>.<name>`. declaration: role, fan_in, fan_out, init, init_scale."""
    full = f"{prefix()}.{name}" if prefix() else name
    return current().parameter(full, shape, **declaration)


def sow(name: str, value: Like | Callable[[], Like]) -> None:
    """Record the value under `<part>.<name>` when a capture is active (Recorder(capture=True)).

    value: a value, or a function that makes one, for values that a fused op never stores. The function is called only
    during a capture.
    """
    current().sow(f"{prefix()}.{name}" if prefix() else name, value)


def bias(name: str, width: int) -> Like:
    """The bias `<name>` [width], zeros."""
    return parameter(name, (width,), role="bias", fan_in=width, fan_out=width, init="zeros")


def linear(
    x: Like,
    name: str,
    width: int,
    *,
    std: float,
    bias: bool = False,
    activation: str = "none",
    residual: Like | None = None,
    role: str = "matrix",
    init: str = "normal",
) -> Like:
    """act(x W + b) + residual with W = `<name>.w` [in, width], normal(0, std), and b = `<name>.b`, zeros."""
    fan_in = x.shape[-1]
    with part(name):
        w = parameter(
            "w", (fan_in, width), role=role, fan_in=fan_in, fan_out=width, init=init, init_scale=std
        )
        b = (
            parameter("b", (width,), role="bias", fan_in=fan_in, fan_out=width, init="zeros")
            if bias
            else None
        )
        made: Like = ops.linear(x, w, b, residual, activation=activation)
    return made


def stack(name: str, count: int, fan_in: int, fan_out: int, *, std: float) -> Like:
    """`count` matrices `<name>.w` [count, in, out] (experts), normal(0, std)."""
    with part(name):
        shape = (count, fan_in, fan_out)
        return parameter(
            "w", shape, role="matrix", fan_in=fan_in, fan_out=fan_out, init="normal", init_scale=std
        )


def rms_norm(x: Like, name: str, *, eps: float) -> Like:
    """RMSNorm with the learned gain `<name>.gain`, ones."""
    with part(name):
        made: Like = ops.rms_norm(x, _gain(x.shape[-1]), eps=eps)
    return made


def layer_norm(
    x: Like,
    name: str,
    *,
    eps: float,
    gain_offset: float = 0.0,
    gain_init: tuple[str, float] = ("ones", 0.0),
    scale: float = 1.0,
) -> Like:
    """LayerNorm with `<name>.gain`, ones, and `<name>.bias`, zeros; gain_offset and scale as in ops.layer_norm."""
    width = x.shape[-1]
    with part(name):
        bias = parameter("bias", (width,), role="bias", fan_in=width, fan_out=width, init="zeros")
        gain = _gain(width, *gain_init)
        made: Like = ops.layer_norm(x, gain, bias, eps=eps, gain_offset=gain_offset, scale=scale)
    return made


def _gain(width: int, init: str = "ones", value: float = 0.0) -> Like:
    return parameter("gain", (width,), role="gain", fan_in=width, fan_out=width, init=init, init_scale=value)


def embedding(ids: Like, name: str, vocab_size: int, width: int, *, std: float) -> Like:
    """Rows of the table `<name>` [V, D]."""
    made: Like = ops.embedding(ids, unembedding(name, vocab_size, width, std=std, role="embedding"))
    return made


def positions(x: Like, name: str, longest: int, *, std: float, given: Like | None = None) -> Like:
    """x plus the rows of the table `<name>` [longest, D] at the positions (0, 1, ... unless given)."""
    table = unembedding(name, longest, x.shape[-1], std=std, role="embedding")
    made: Like = ops.embedding(given, table, residual=x, positions=given is None)
    return made


def head(config: TiedHead, *, std: float) -> Like:
    """The table [V, D] of the logits: the embedding's where they are tied, or the parameter `head`."""
    role, name = ("embedding", "embed") if config.tie_embeddings else ("head", "head")
    return unembedding(name, config.vocab_size, config.d_model, std=std, role=role)


def unembedding(name: str, vocab_size: int, width: int, *, std: float, role: str = "head") -> Like:
    """The table `<name>` [V, D] itself; of a tied head the embedding's."""
    return parameter(
        name, (vocab_size, width), role=role, fan_in=width, fan_out=vocab_size, init="normal", init_scale=std
    )
