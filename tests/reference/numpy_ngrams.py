"""The hashed n-grams of ops.ngram_rows in NumPy, with unsigned integers of 64 bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


def mix(h: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the finalizer of SplitMix64 (Steele et al. 2014)."""
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = h ^ (h >> np.uint64(31))
    return mixed


def documents(ids: Ints, segments: Ints | None, end: int) -> NDArray[np.int64]:
    """Return a number for each position [B, T] that grows at the start of every document."""
    starts = np.zeros(ids.shape, bool)
    starts[:, 1:] = ids[:, :-1] == end
    if segments is not None:
        starts[:, 1:] |= segments[:, 1:] != segments[:, :-1]
    numbers: NDArray[np.int64] = np.cumsum(starts, axis=1)
    return numbers


def hashes(ids: Ints, segments: Ints | None, *, order: int, seed: int, end: int) -> NDArray[np.uint64]:
    """Return the hashes [B, T] of the n-grams that end at each position."""
    document, length = documents(ids, segments, end), ids.shape[1]
    h = mix(np.full(ids.shape, seed * 4 + order, np.uint64))
    for back in reversed(range(order)):
        token = np.zeros(ids.shape, np.uint64)
        kept = min(back, length)
        same = document[:, kept:] == document[:, : length - kept]
        token[:, kept:] = np.where(same, ids[:, : length - kept].astype(np.uint64) + np.uint64(1), 0)
        h = mix(h + token)
    return h


def signed_rows(
    ids: Ints, segments: Ints | None, rows: int, *, orders: str = "2,3", seed: int = 0, end: int = -1
) -> list[tuple[Ints, Floats]]:
    """Return the rows [B, T] and signs [B, T, 1] of the n-grams of each order."""
    found = []
    for order in orders.split(","):
        h = hashes(ids, segments, order=int(order), seed=seed, end=end)
        row = ((h >> np.uint64(32)) * np.uint64(rows) >> np.uint64(32)).astype(np.int32)
        found.append((row, np.where(h % np.uint64(2) == 0, 1.0, -1.0)[..., None]))
    return found


def ngram_rows(
    ids: Ints,
    table: NDArray[np.float32],
    segments: Ints | None = None,
    *,
    orders: str = "2,3",
    seed: int = 0,
    end: int = -1,
) -> Floats:
    """Return the sums [B, T, D] over the orders of sign * table[row], in float64."""
    y = np.zeros((*ids.shape, table.shape[1]))
    for row, sign in signed_rows(ids, segments, len(table), orders=orders, seed=seed, end=end):
        y += sign * table[row]
    return y


def ngram_rows_backward(
    dy: NDArray[np.float32],
    ids: Ints,
    table: NDArray[np.float32],
    segments: Ints | None = None,
    *,
    orders: str = "2,3",
    seed: int = 0,
    end: int = -1,
) -> Floats:
    """Return the gradient of the table in float64."""
    gradient = np.zeros(table.shape)
    for row, sign in signed_rows(ids, segments, len(table), orders=orders, seed=seed, end=end):
        np.add.at(gradient, row, sign * dy)
    return gradient
