"""Building blocks of model functions: declare parameters by name and role, call ops.

Names and roles follow contracts 10 and 11: weights are [in, out] for y = x W, embedding and head are [V, D]. The
formulas are in the docstrings of ops/ and in docs/maths/.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, Unpack

from mudd_core import ops
from mudd_core.base.arguments.known import unknown
from mudd_core.base.other_names import NN
from mudd_core.config.families import TiedHead
from mudd_core.graph.parameters import Adapters, Declaration
from mudd_core.graph.recording import Like, current, part, prefix

__all__ = [
    "activated",
    "bias",
    "branch",
    "embedding",
    "expert_adapter",
    "head",
    "head_norm",
    "layer_norm",
    "linear",
    "parameter",
    "part",
    "positions",
    "prefix",
    "rms_norm",
    "sow",
    "sow_fused",
    "stack",
    "unembedding",
]


T = TypeVar("T")


def parameter(name: str, shape: tuple[int, ...], **declaration: Unpack[Declaration]) -> Like:
    """Return the parameter `<part>.<name>`. declaration: role, fan_in, fan_out, init, init_scale."""
    return current().parameter(_full(name), shape, **declaration)


def sow(name: str, value: Like) -> Like:
    """Name a value `<part>.<name>` for Model.capture and Model.patch; use the returned value from then on.

    The returned value is `value` itself unless a patch is active. Without a capture nothing is recorded.
    """
    return current().sow(_full(name), value)


def sow_fused(name: str, fused: Callable[[], T], make: Callable[[], Like], rest: Callable[[Like], T]) -> T:
    """Return the result of `fused`, an op that computes the value `<part>.<name>` internally but never stores it.

    make: computes the value; called only by a capture. rest: computes the result from the value; it replaces `fused` if
    the value is patched or its gradient is captured.
    """
    scope, full = current(), _full(name)
    if scope.on_path(full):
        return rest(scope.sow(full, make()))
    scope.sow_made(full, make)
    return fused()


def branch(name: str, residual: Like, make: Callable[[Like | None], Like]) -> Like:
    """Return residual + the branch `<part>.<name>`, computed in one op.

    make: computes the branch, and adds the residual unless it is None.
    """
    return sow_fused(
        name,
        fused=lambda: make(residual),
        make=lambda: make(None),
        rest=lambda y: ops.add(residual, y),
    )


def activated(activation: str, product: Callable[[str], Like]) -> Like:
    """Return the `inner` activations of a feed-forward part; one op computes the matmul `up` and the activation.

    product: returns act(x W) for the activation it is called with.
    """
    return sow(
        "inner",
        sow_fused(
            "up",
            fused=lambda: product(activation),
            make=lambda: product("none"),
            rest=lambda h: ops.activation(h, activation=activation),
        ),
    )


def _full(name: str) -> str:
    return f"{prefix()}.{name}" if prefix() else name


def bias(name: str, width: int) -> Like:
    """Return the bias `<name>` [width], initialized to zeros."""
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
    """Return act(x W + b) + residual with W = `<name>.w` [in, width], normal(0, std), and b = `<name>.b`, zeros."""
    fan_in = x.shape[-1]
    with part(name):
        adapter = current().adapter(prefix())
        w = parameter(
            "w", (fan_in, width), role=role, fan_in=fan_in, fan_out=width, init=init, init_scale=std
        )
        b = (
            parameter("b", (width,), role="bias", fan_in=fan_in, fan_out=width, init="zeros")
            if bias
            else None
        )
        if adapter is not None:
            return _adapted(adapter, x, w, b, activation, residual)
        made: Like = ops.linear(x, w, b, residual, activation=activation)
    return made


def _adapted(
    adapter: Adapters, x: Like, w: Like, b: Like | None, activation: str, residual: Like | None
) -> Like:
    """Return act(x W + scale (x A) B + b) + residual; A = `lora_a` [in, rank], B = `lora_b` [rank, width], zeros."""
    fan_in, width, rank = w.shape[0], w.shape[1], adapter.rank
    a, b_low = _factors((fan_in, rank), (rank, width))
    if adapter.initial:
        for name, shape in {"lora_a": (fan_in, rank), "lora_b": (rank, width)}.items():
            parameter(
                f"{name}0",
                shape,
                role="matrix",
                fan_in=shape[0],
                fan_out=shape[1],
                init="zeros",
                trainable=False,
            )
    whole = activation == "none"
    made: Like = ops.lora(
        x,
        w,
        a,
        b_low,
        b,
        residual if whole else None,
        scale=adapter.scale,
        rate=adapter.dropout,
        purpose=f"dropout.{prefix()}",
    )
    if whole:
        return made
    made = ops.activation(made, activation=activation)
    return made if residual is None else ops.add(residual, made)


def _factors(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[Like, Like]:
    """Return A = `lora_a`, random, and B = `lora_b`, zeros, of these shapes."""
    fan_in, rank, width = a[-2], a[-1], b[-1]
    return (
        parameter(
            "lora_a",
            a,
            role="matrix",
            fan_in=fan_in,
            fan_out=rank,
            init="uniform",
            init_scale=fan_in**-0.5,
        ),
        parameter("lora_b", b, role="matrix", fan_in=rank, fan_out=width, init="zeros", init_scale=0.0),
    )


def expert_adapter(
    name: str, count: int, fan_in: int, width: int, parts: int = 1
) -> tuple[Like | None, Like | None, float]:
    """Return (A, B, scale) of the adapter `<name>` of `count` experts; A and B are None if they have no adapter.

    A = `lora_a` [count, in, rank]. B = `lora_b` [count, parts rank, width], zeros; parts: matrices [in, width] that
    share A.
    """
    with part(name):
        adapter = current().adapter(prefix(), of_experts=True)
        if adapter is None:
            return None, None, 1.0
        a, b = _factors((count, fan_in, adapter.rank), (count, parts * adapter.rank, width))
    return a, b, adapter.scale


def stack(name: str, count: int, fan_in: int, fan_out: int, *, std: float) -> Like:
    """Return `count` matrices `<name>.w` [count, in, out], one for each expert, normal(0, std)."""
    with part(name):
        shape = (count, fan_in, fan_out)
        return parameter(
            "w", shape, role="matrix", fan_in=fan_in, fan_out=fan_out, init="normal", init_scale=std
        )


def rms_norm(x: Like, name: str, *, eps: float, gain_offset: float = 0.0) -> Like:
    """Return RMSNorm(x) times gain_offset + `<name>.gain`, which is 1 at the start."""
    return head_norm(x, name, 1, eps=eps, gain_offset=gain_offset)


def head_norm(x: Like, name: str, heads: int, *, eps: float, gain_offset: float = 0.0) -> Like:
    """Return RMSNorm over each head of x [B, T, H*hd]; all heads share the gain `<name>.gain` [hd].

    gain_offset: a constant that is added to the gain; the sum is 1 at the start.
    """
    start = ("constant", 1.0 - gain_offset) if gain_offset else ("ones", 0.0)
    with part(name):
        gain = _gain(x.shape[-1] // heads, *start)
        made: Like = ops.rms_norm(x, gain, eps=eps, heads=heads, gain_offset=gain_offset)
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
    """Return LayerNorm(x) with `<name>.gain`, ones, and `<name>.bias`, zeros; other options as in ops.layer_norm."""
    width = x.shape[-1]
    with part(name):
        bias = parameter("bias", (width,), role="bias", fan_in=width, fan_out=width, init="zeros")
        gain = _gain(width, *gain_init)
        made: Like = ops.layer_norm(x, gain, bias, eps=eps, gain_offset=gain_offset, scale=scale)
    return made


def _gain(width: int, init: str = "ones", value: float = 0.0) -> Like:
    return parameter("gain", (width,), role="gain", fan_in=width, fan_out=width, init=init, init_scale=value)


def embedding(ids: Like, name: str, vocab_size: int, width: int, *, std: float, scale: float = 1.0) -> Like:
    """Return the rows of the table `<name>` [V, D] for the ids, times the scale."""
    table = unembedding(name, vocab_size, width, std=std, role="embedding")
    made: Like = ops.embedding(ids, table, scale=scale)
    return made


def positions(x: Like, name: str, longest: int, *, std: float, given: Like | None = None) -> Like:
    """Add to x the rows of the table `<name>` [longest, D] at the positions `given`, or 0, 1, ... if it is None."""
    table = unembedding(name, longest, x.shape[-1], std=std, role="embedding")
    made: Like = ops.embedding(given, table, residual=x, positions=given is None)
    return made


def head(config: TiedHead, *, std: float, init: str = "normal") -> Like:
    """Return the table [V, D] of the logits: the embedding's if they are tied, else the parameter `head`.

    init: the distribution of an untied head, as in parameter().
    """
    if config.tie_embeddings:
        return unembedding("embed", config.vocab_size, config.d_model, std=std, role="embedding")
    return unembedding("head", config.vocab_size, config.d_model, std=std, init=init)


def unembedding(
    name: str, vocab_size: int, width: int, *, std: float, role: str = "head", init: str = "normal"
) -> Like:
    """Return the table `<name>` [V, D]; for a tied head pass the embedding's name."""
    return parameter(
        name, (vocab_size, width), role=role, fan_in=width, fan_out=vocab_size, init=init, init_scale=std
    )


if not TYPE_CHECKING:  # type checkers report missing names themselves

    def __getattr__(name):
        raise unknown("nn", name, NN)
