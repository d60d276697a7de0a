"""The sample order of the pipeline `pile` (muddformer e.3): groups of files, their batches, an optional reservoir."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate

import numpy as np

from mudd_core.base.types import Int64


class Groups:
    """The file and record of each sample: the repeated list of files is divided into groups, and these into batches."""

    def __init__(
        self, counts: list[int], group: int, batch: int, buffer: int, seed: int, epochs: int = 0
    ) -> None:
        n = len(counts)
        self._counts, self._batch, self._buffer, self._seed = counts, batch, buffer, seed
        self._files_in_all = epochs * n  # files in all epochs; 0: unlimited
        self._size = min(group, 1 << 40) or n
        # All files of all epochs are one group: no batch is dropped between epochs.
        self._endless = group == 0
        period = n // math.gcd(n, self._size)
        sizes = [sum(self._files(g, self._size)) // batch for g in range(period)]
        self._ends = list(accumulate(sizes))
        self._kept: tuple[int, Int64] | None = None
        self.rows = sum(counts)

    def _files(self, group: int, size: int) -> list[int]:
        n = len(self._counts)
        return [self._counts[(group * self._size + j) % n] for j in range(size)]

    def batches(self, epochs: int) -> int:
        """Return the number of whole batches when the list of files is read `epochs` times."""
        if self._endless:
            return epochs * self.rows // self._batch
        whole, rest = divmod(epochs * len(self._counts), self._size)
        rounds, left = divmod(whole, len(self._ends))
        done = rounds * self._ends[-1] + (self._ends[left - 1] if left else 0)
        return done + sum(self._files(whole, rest)) // self._batch

    def place(self, sample: int) -> tuple[int, int]:
        """Return (file, record) of a sample."""
        n = len(self._counts)
        if self._endless:
            turn, at = divmod(sample, self.rows)
            first = 0
        else:
            rounds, batch = divmod(sample // self._batch, self._ends[-1])
            group = bisect_right(self._ends, batch)
            before = self._ends[group - 1] if group else 0
            at = (batch - before) * self._batch + sample % self._batch
            turn, first = rounds * len(self._ends) + group, group * self._size % n
        if self._buffer:
            at = int(self._order(turn, self._records(turn))[at])
        file = first
        while at >= self._counts[file]:
            at -= self._counts[file]
            file = (file + 1) % n
        return file, at

    def _records(self, turn: int) -> int:
        """Return the number of records in a group; the last group of data.epochs may have fewer files."""
        if self._endless:
            return self.rows
        left = self._files_in_all - turn * self._size
        return sum(self._files(turn, min(self._size, left) if left > 0 else self._size))

    def _order(self, turn: int, count: int) -> Int64:
        """Return the order of records from a reservoir of `buffer` records: each new record replaces a random one."""
        if self._kept is None or self._kept[0] != turn:
            draw = np.random.Generator(np.random.Philox(key=[self._seed, turn]))
            size = min(self._buffer, count)
            left, held = through_reservoir(draw.integers(0, size, count - size), size)
            self._kept = (turn, np.concatenate([left, draw.permutation(held)]))
        return self._kept[1]


def through_reservoir(slots: Int64, size: int) -> tuple[Int64, Int64]:
    """Return (records in the order of leaving, records that stay) if record size + i replaces slot slots[i].

    A record leaves the reservoir when its slot is next replaced, so a stable sort by slot finds the order without a
    loop.
    """
    narrow = slots.astype(np.uint16) if size <= 1 << 16 else slots  # NumPy uses a radix sort for this type
    by_place = np.argsort(narrow, kind="stable")
    again = slots[by_place[1:]] == slots[by_place[:-1]]
    left, held = slots.astype(np.int64), np.arange(size, dtype=np.int64)
    left[by_place[1:][again]] = size + by_place[:-1][again]
    last = np.append(~again, slots.size > 0)[: slots.size]
    held[slots[by_place[last]]] = size + by_place[last]
    return left, held
