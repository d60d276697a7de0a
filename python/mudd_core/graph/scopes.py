"""Context managers for settings that ops running at once read: shards, cached positions and precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

_cuts: ContextVar[tuple[int, ...]] = ContextVar("shard_cuts", default=())
_cache_length: ContextVar[int] = ContextVar("cache_length", default=0)
_compute: ContextVar[str] = ContextVar("compute", default="float32")

COMPUTE = {"fp32": "float32", "bf16": "bfloat16", "float32": "float32", "bfloat16": "bfloat16"}
"""The core's compute type for each name that users may pass."""


@contextmanager
def shards(samples: int, count: int) -> Iterator[None]:
    """Sum over tokens in `count` logical shards of `samples` samples, as in training, inside the `with` block.

        count must be a power of two that divides samples. The first axis of every tensor must be a multiple of samples
    (contracts 2).
    """
    if count < 1 or count & (count - 1) or samples % count:
        raise ValueError(f"[shards] count: expected a power of two that divides {samples}, got {count}")
    token = _cuts.set(tuple(range(0, samples + 1, samples // count)))
    try:
        yield
    finally:
        _cuts.reset(token)


@contextmanager
def cached(length: int) -> Iterator[None]:
    """Let attention's caches start with `length` positions inside the `with` block; new positions follow them."""
    if length < 0:
        raise ValueError(f"[cached] length: expected a number >= 0, got {length}")
    token = _cache_length.set(length)
    try:
        yield
    finally:
        _cache_length.reset(token)


def precision(name: str) -> AbstractContextManager[None]:
    """Compute ops as in a graph of this precision, "fp32" or "bf16", inside the `with` block.

    Arrays stay float32. In bf16, results that a graph would store in bf16 are rounded to bf16 values. The call itself
    raises ValueError for another name.
    """
    if name not in COMPUTE:
        raise ValueError(f"[precision] name: expected one of {', '.join(COMPUTE)}, got {name!r}")
    return _computing(COMPUTE[name])


@contextmanager
def _computing(kind: str) -> Iterator[None]:
    token = _compute.set(kind)
    try:
        yield
    finally:
        _compute.reset(token)


def in_force() -> tuple[list[int], int, str]:
    """Return (first samples of the shards and the end, cached positions, compute type) of the current context."""
    return list(_cuts.get()), _cache_length.get(), _compute.get()
