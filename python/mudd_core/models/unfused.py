"""Values that fused ops compute but never store, as pairs of NumPy functions; only captures and patches run them.

Shape letters: B samples, T positions, H query heads, G key and value heads, hd head width, C streams, l states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypedDict

import numpy as np

from mudd_core import ops
from mudd_core.base.types import Array
from mudd_core.graph.recording import Like, Value
from mudd_core.graph.records import sum_in_order
from mudd_core.graph.tape import Tensor


class ScoreOptions(TypedDict, total=False):
    """The options of ops.attention that affect its weights."""

    n_head: int
    n_kv_head: int
    scale: float
    causal: bool
    window: int
    activation: str
    divisor: int
    eps: float


def attention_weights(
    q: Like, k: Like, segments: Like | None, key_mask: Like | None, options: ScoreOptions
) -> Like:
    """Return the weights [B, H, T, T] of ops.attention for q [B, T, H*hd] and k [B, T, G*hd]."""
    seen = (_array(segments), _array(key_mask))

    def forward(q: Array, k: Array) -> Array:
        return weight_columns(q, k, options, *seen)

    def backward(dp: Array, q: Array, k: Array) -> tuple[Array, Array]:
        dq, dk = np.zeros_like(q), np.zeros_like(k)
        for first, unit in _unit_values(k, options):
            columns = dp[..., first : first + _width(k, options)].transpose(0, 2, 1, 3)
            padded = np.zeros((*columns.shape[:3], _width(k, options)), np.float32)
            padded[..., : columns.shape[-1]] = columns
            do = padded.reshape(*q.shape[:2], -1)
            one = ops.attention_backward(do, q, k, unit, *seen, **options)
            dq += one[0]
            dk += one[1]
        return dq, dk

    made: Like = ops.custom(forward, backward, q, k)
    return made


def weight_columns(
    q: Array, k: Array, options: ScoreOptions, segments: Array | None = None, key_mask: Array | None = None
) -> Array:
    """Recover the weights P [B, H, T, T] of ops.attention by passing unit vectors as v, hd columns in each call."""
    samples, length, _ = q.shape
    width = _width(k, options)
    found = []
    for first, unit in _unit_values(k, options):
        o: Array = ops.attention(q, k, unit, segments, key_mask, **options)
        heads = o.reshape(samples, length, -1, width)
        found.append(heads[..., : length - first].transpose(0, 2, 1, 3))
    return np.concatenate(found, axis=-1)


def _width(k: Array, options: ScoreOptions) -> int:
    return int(k.shape[-1]) // options["n_kv_head"]


def _unit_values(k: Array, options: ScoreOptions) -> Iterator[tuple[int, Array]]:
    """Yield (first, values [B, T, G*hd]): in each head, position s has the unit vector s - first, or zero."""
    samples, length, _ = k.shape
    width = _width(k, options)
    for first in range(0, length, width):
        unit = np.eye(length, width, -first, dtype=np.float32)
        yield first, np.tile(unit, (samples, 1, options["n_kv_head"]))


def weighted_values(weights: Like, v: Like, groups: int) -> Like:
    """Return the heads side by side [B, T, H*hd] for weights [B, H, T, T] and values [B, T, G*hd] of `groups` heads."""

    def split(v: Array, heads: int) -> Array:  # [B, H, T, hd]; each group is repeated for its query heads
        each = v.reshape(*v.shape[:2], groups, -1).transpose(0, 2, 1, 3)
        return np.repeat(each, heads // groups, axis=1)

    def forward(p: Array, v: Array) -> Array:
        o = p @ split(v, p.shape[1])
        return np.ascontiguousarray(o.transpose(0, 2, 1, 3).reshape(*v.shape[:2], -1))

    def backward(do: Array, p: Array, v: Array) -> tuple[Array, Array]:
        samples, heads, length, _ = p.shape
        d = do.reshape(samples, length, heads, -1).transpose(0, 2, 1, 3)
        dv = (p.transpose(0, 1, 3, 2) @ d).reshape(samples, groups, heads // groups, length, -1).sum(2)
        dp = d @ split(v, heads).transpose(0, 1, 3, 2)
        return dp, np.ascontiguousarray(dv.transpose(0, 2, 1, 3).reshape(v.shape))

    made: Like = ops.custom(forward, backward, weights, v)
    return made


def router_logits(x: Like, w: Like) -> Like:
    """Return the logits [B, T, E] of a router [D, E], in fp32 for any precision of the model."""

    def backward(dz: Array, x: Array, w: Array) -> tuple[Array, Array]:
        return dz @ w.T, x.reshape(-1, w.shape[0]).T @ dz.reshape(-1, w.shape[1])

    made: Like = ops.custom(lambda x, w: x @ w, backward, x, w)
    return made


def stream_weights(dynamic: Like | None, bias: Like, x_BTD: Like) -> Like:
    """Return the weights [B, T, C, l] of mixtures: dynamic ones [B, T, C l] plus the bias [C, l], or the bias alone."""

    def forward(bias: Array, given: Array) -> Array:
        shape = (*given.shape[:2], *bias.shape)
        return bias + given.reshape(shape) if dynamic is not None else np.array(np.broadcast_to(bias, shape))

    def backward(da: Array, bias: Array, given: Array) -> tuple[Array, Array]:
        rest = da.reshape(given.shape) if dynamic is not None else np.zeros_like(given)
        return da.sum((0, 1)), rest

    made: Like = ops.custom(forward, backward, bias, x_BTD if dynamic is None else dynamic)
    return made


def mixed_streams(weights: Like, states: Sequence[Like]) -> tuple[Like, ...]:
    """Return the C streams [B, T, D] for weights [B, T, C, l] and l states [B, T, D]."""

    def forward(a: Array, *states: Array) -> tuple[Array, ...]:
        return tuple(
            sum_in_order([a[:, :, c, j, None] * x for j, x in enumerate(states)]) for c in range(a.shape[2])
        )

    def backward(*given: Array) -> tuple[Array, ...]:
        dys, (a, *states) = given[: -count - 1], given[-count - 1 :]
        da = np.stack([np.stack([(dy * x).sum(-1) for x in states], -1) for dy in dys], 2)
        dx = (
            sum_in_order([a[:, :, c, j, None] * dy for c, dy in enumerate(dys)]) for j in range(len(states))
        )
        return da, *dx

    count = len(states)
    made = ops.custom(forward, backward, weights, *states)
    return made if isinstance(made, tuple) else (made,)


def _array(given: Like | None) -> Array | None:
    if isinstance(given, Value):
        raise TypeError(
            "[capture] attention weights: a graph with segments or a key_mask cannot compute them"
        )
    return given.data if isinstance(given, Tensor) else given
