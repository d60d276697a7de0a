"""Attention of a block, for every family: its masks, its cache, and the names of its values.

Shape letters: B samples, T positions, H query heads, G key and value heads, hd head width.
"""

from __future__ import annotations

from typing import TypedDict, Unpack

from mudd_core import nn, ops
from mudd_core.graph.recording import Like
from mudd_core.models.hidden import Batch, Cache
from mudd_core.models.unfused import ScoreOptions, attention_weights, weighted_values

__all__ = ["Rotation", "attend", "seen"]


class Rotation(TypedDict, total=False):
    """The options of ops.rope that determine its frequencies."""

    base: float
    fraction: float
    scaling: str
    factor: float
    low_freq: float
    high_freq: float
    original: int


class Seen(TypedDict, total=False):
    """The optional inputs of attention."""

    segments: Like | None
    key_mask: Like | None
    k_cache: Like
    v_cache: Like
    ring: bool


def seen(batch: Batch, cache: Cache | None, layer: int) -> Seen:
    """Return the optional inputs of attention: segments and masks, and the cache while decoding."""
    if cache is None:
        return {"segments": batch.segments, "key_mask": batch.key_mask}
    return {"k_cache": cache.k[layer], "v_cache": cache.v[layer], "ring": cache.ring}


def attend(
    q: Like,
    k: Like,
    v: Like,
    batch: Batch,
    cache: Cache | None,
    layer: int,
    *,
    dropout: float = 0.0,
    purpose: str = "dropout",
    **scores: Unpack[ScoreOptions],
) -> Like:
    """Return the heads side by side [B, T, H*hd] for queries [B, T, H*hd], keys and values [B, T, G*hd].

    The values are named `queries`, `keys`, `weights` [B, H, T, T] and `heads` for Model.capture. The kernel never
    stores the weights. dropout, purpose, scores: options of ops.attention.
    """
    queries, keys = nn.sow("queries", q), nn.sow("keys", k)

    def fused() -> Like:
        given = seen(batch, cache, layer)
        made: Like = ops.attention(queries, keys, v, dropout=dropout, purpose=purpose, **scores, **given)
        return made

    o = nn.sow_fused(
        "weights",
        fused,
        make=lambda: attention_weights(queries, keys, batch.segments, batch.key_mask, scores),
        rest=lambda weights: weighted_values(weights, v, scores["n_kv_head"]),
    )
    return nn.sow("heads", o)
