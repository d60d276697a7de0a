"""The draws of dropout in NumPy: Philox4x32-10 keyed by seed and place (contracts 5), element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

_LOW = np.uint64(0xFFFFFFFF)


def _philox(counter: list[Any], key: list[int]) -> list[Any]:
    x = [np.asarray(c, np.uint64) & _LOW for c in counter]
    k = [np.uint64(part) for part in key]
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * x[0], np.uint64(0xCD9E8D57) * x[2]
        x = [(p1 >> np.uint64(32)) ^ x[1] ^ k[0], p1 & _LOW, (p0 >> np.uint64(32)) ^ x[3] ^ k[1], p0 & _LOW]
        k = [(k[0] + np.uint64(0x9E3779B9)) & _LOW, (k[1] + np.uint64(0xBB67AE85)) & _LOW]
    return x


def _hash(place: str) -> int:
    h = 2166136261
    for byte in place.encode():
        h = (h ^ byte) * 16777619 & 0xFFFFFFFF
    return h


def factors(
    rate: float, place: str, sample: Any, position: Any, element: Any, *, seed: int = 0, step: int = 0
) -> Any:
    """Return float64 factors, 0 or 1 / (1 - rate) in fp32, for broadcast integer arrays; seed below 2^32."""
    sample, position, element = np.broadcast_arrays(sample, position, element)
    words = np.stack(_philox([step, sample, position, element // 4], [seed, _hash(place)]))
    word = np.take_along_axis(words, (element % 4)[None], 0)[0]
    kept = word >= np.ceil(rate * 2**32)
    return np.where(kept, float(np.float32(1 / (1 - rate))), 0.0)
