"""Packing of whole examples into rows: best fit in the order of falling lengths."""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush

import numpy as np

from mudd_core.base.types import Int64


def best_fit(lengths: Int64, capacity: int) -> list[list[int]]:
    """For each row the places of its examples in the order of falling lengths.

    lengths: [n], falling, each from 1 to capacity. An example goes into the row that it fills most, the first of
    several, or into a new one. So rows follow from the lengths alone.
    """
    rows: list[list[int]] = []
    sizes: list[int] = []  # of the space that rows have left, rising, each once
    by_size: dict[int, list[int]] = {}  # rows with so much space, as heaps
    for place, length in enumerate(lengths.tolist()):
        at = bisect_left(sizes, length)
        if at == len(sizes):
            row, space = len(rows), capacity
            rows.append([])
        else:
            space = sizes[at]
            row = heappop(by_size[space])
            if not by_size[space]:
                del by_size[space], sizes[at]
        rows[row].append(place)
        if left := space - length:
            if left not in by_size:
                insort(sizes, left)
            heappush(by_size.setdefault(left, []), row)
    return rows


def falling(lengths: Int64) -> Int64:
    """The examples in the order of falling lengths, equal ones in their own order."""
    order: Int64 = np.argsort(-lengths, kind="stable")
    return order
