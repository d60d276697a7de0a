"""States of sequences with common prefixes: each prefix is computed once and stays in a KV cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from mudd_core.base.types import Float32
from mudd_core.config import ModelConfig
from mudd_core.engine.generate import Caches, new_caches
from mudd_core.engine.scoring.graphs import Graphs
from mudd_core.engine.scoring.shared import Group, Ids, groups_of, together

_ROUNDED = 64  # positions of caches are rounded up to a multiple

# The number of a sequence, and a function that returns copies of its states [first, end).
Found = tuple[int, Callable[[int, int], Float32]]


class Walk:
    """Walks over groups of sorted sequences, from their common prefix to the rest of each one.

    The keys and values of the prefix are in sequence 0 of the caches. A graph run continues up to TOGETHER sequences
    at the same length, after a copy. computed: the tokens of all graph runs so far.
    """

    def __init__(self, graphs: Graphs, sequences: Sequence[Ids], config: ModelConfig) -> None:
        self._graphs, self._sequences, self._config = graphs, sequences, config
        self._caches: Caches = {}
        self._states = np.zeros((0, 0), np.float32)  # of the prefix in the cache
        self._together = 1
        self.computed = 0

    def group(self, group: Group) -> Iterator[Found]:
        """Yield the states of the sequences of a group."""
        longest = max(len(self._sequences[at]) for at in range(group.first, group.end))
        self._allocate(min(self._config.max_seq_len, -(-longest // _ROUNDED) * _ROUNDED))
        yield from self._inside(group, 0)

    def _allocate(self, positions: int) -> None:
        if len(self._states) >= positions:
            return
        self._together = together(self._config, positions)
        self._caches = new_caches(self._config, self._together, positions)
        self._states = np.zeros((positions, self._config.d_model), np.float32)

    def _inside(self, group: Group, cached: int) -> Iterator[Found]:
        """Yield the states of a group of which `cached` ids are in the cache; keep these."""
        # No sequence is a prefix of another one, so each continues after the shared ids.
        sequences, shared = self._sequences[group.first : group.end], group.shared
        ids = np.array([sequences[0][cached:shared]], np.int32)
        self.computed += ids.size
        self._states[cached:shared] = self._graphs.states(ids, self._caches, cached)[0]
        parts = groups_of(sequences, shared)
        yield from self._rests(
            [group.first + part.first for part in parts if part.end - part.first == 1], shared
        )
        for part in parts:
            if part.end - part.first > 1:
                inner = Group(group.first + part.first, group.first + part.end, part.shared)
                yield from self._inside(inner, shared)

    def _rests(self, chosen: Sequence[int], shared: int) -> Iterator[Found]:
        """Yield the states of sequences that continue the ids in the cache alone, the longest first."""
        order = sorted(chosen, key=lambda at: -len(self._sequences[at]))
        while order:
            count = min(self._together, 1 << (len(order).bit_length() - 1))
            some, order = order[:count], order[count:]
            longest = len(self._sequences[some[0]]) - shared
            length = min(-(-longest // 4) * 4 if longest > 2 else longest, len(self._states) - shared)
            ids = np.zeros((count, length), np.int32)
            for row, at in enumerate(some):
                rest = self._sequences[at][shared:]
                ids[row, : len(rest)] = rest
            for array in self._caches.values() if count > 1 else ():
                array[1:count, :, :shared] = array[:1, :, :shared]
            self.computed += ids.size
            states = self._graphs.states(ids, self._caches, shared)
            for row, at in enumerate(some):
                yield at, partial(self._copied, shared, states[row])

    def _copied(self, shared: int, rest: Float32, first: int, end: int) -> Float32:
        """Return the states [first, end) of a sequence whose first `shared` states belong to the prefix."""
        before = self._states[first : max(first, min(end, shared))]
        after = rest[max(0, first - shared) : max(0, end - shared)]
        return np.concatenate([before, after])
