"""Decide which sequences share a computed prefix. Costs are in tokens of a large graph run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mudd_core.config import ModelConfig, mixture_of
from mudd_core.config.families import head_width, kv_heads

LEAST = 32  # a graph run of fewer tokens takes as long as one of this many: it reads all weights
TOGETHER = 8  # most sequences that continue cached ones in one graph run
_BYTES = 1 << 28  # most bytes of the caches, unless one sequence needs more

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """Sequences [first, end) of a sorted list, whose first `shared` ids are equal. One sequence alone is a group."""

    first: int
    end: int
    shared: int


def longest_of(sequences: Sequence[Ids]) -> tuple[list[Ids], list[int]]:
    """Return the distinct sequences that are no prefix of another one, sorted, and for each sequence its number.

    A causal model computes a prefix together with the longer sequence.
    """
    found: list[Ids] = []
    number = [0] * len(sequences)
    # In sorted order a prefix comes directly before its continuations.
    for at in sorted(range(len(sequences)), key=lambda at: sequences[at], reverse=True):
        ids = sequences[at]
        if not found or found[-1][: len(ids)] != ids:
            found.append(ids)
        number[at] = len(found) - 1
    last = len(found) - 1
    return found[::-1], [last - at for at in number]


def together(config: ModelConfig, positions: int) -> int:
    """Return how many sequences a graph run continues: a power of two, at most TOGETHER. positions: of a cache."""
    values = 2 * config.n_layer * kv_heads(config) * head_width(config)
    fitting = _BYTES // (4 * values * positions)
    return max(1, min(TOGETHER, 1 << max(0, fitting.bit_length() - 1)))


def depends_on_others(config: ModelConfig) -> bool:
    """Return whether the bits of a sequence depend on the other tokens of its graph run, as the experts' capacity."""
    mixture = mixture_of(config)
    return mixture is not None and mixture.capacity_factor > 0


def common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the common prefix of two sequences."""
    pairs = zip(first, second, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def groups_of(sequences: Sequence[Ids], computed: int) -> list[Group]:
    """Return the groups of sorted sequences that cost least, joined from the first one on.

    computed: the ids at the start of all sequences that are already in a cache; 0 if there is none.
    """
    found: list[Group] = []
    for at in range(len(sequences)):
        alone = Group(at, at + 1, len(sequences[at]))
        if found:
            last = found[-1]
            joined = Group(last.first, at + 1, min(last.shared, common(sequences[at - 1], sequences[at])))
            if _cost(joined, sequences, computed) < _cost(last, sequences, computed) + _cost(
                alone, sequences, computed
            ):
                found[-1] = joined
                continue
        found.append(alone)
    return found


def _cost(group: Group, sequences: Sequence[Ids], computed: int) -> float:
    lengths = [len(ids) for ids in sequences[group.first : group.end]]
    if len(lengths) == 1:
        rest = lengths[0] - computed
        return rest + LEAST / TOGETHER if computed else rest
    if group.shared <= computed:
        return float("inf")
    # Each sequence computes its last id again if the group shares all of it; keys and values are copied.
    rests = sum(max(1, length - group.shared) + LEAST / TOGETHER for length in lengths)
    copied = group.shared * len(lengths) / 64
    return max(LEAST, group.shared - computed) + max(LEAST, rests) + copied
