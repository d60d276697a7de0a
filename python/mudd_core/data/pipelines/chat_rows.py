"""Pack conversations into sequences, and drop or truncate examples that are too long.

Whole examples are packed by best fit, from the longest to the shortest.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.types import Int32, Int64
from mudd_core.data.chat.kept import IDS, Kept
from mudd_core.data.chat.masks import Example
from mudd_core.data.documents.origins import FindPlaces, Origin, with_places
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.rows import RowShape
from mudd_core.data.sources.corpus import Split

PARTS = ("positions", "segments")


@dataclass(frozen=True)
class Chosen:
    """The examples of a split that fit sequences of T ids.

    places: the indices of these examples. dropped: the count of longer examples.
    """

    places: Int64
    slots: Int64  # the number of input ids in each example: all but the last
    dropped: int
    cut: int


def chosen(kept: Kept, split: Split, seq_len: int, too_long: str) -> Chosen:
    """Return the examples of a split. With too_long=fail raise UserError if one is longer than T + 1 ids."""
    places = np.flatnonzero(kept.held == (split == "valid"))
    lengths = kept.lengths[places]
    long = lengths > seq_len + 1
    if too_long == "fail" and long.any():
        first = int(np.flatnonzero(long)[0])
        raise UserError(
            f"[data.too_long] example {kept.numbers[places[first]]} has {lengths[first]:,} tokens, and {long.sum():,} "
            f"of {places.size:,} {split} examples have more than train.seq_len + 1 = {seq_len + 1:,}; raise "
            "train.seq_len, or set data.too_long=drop (left out) or cut (from the left)"
        )
    heads = kept.heads[places]
    fits = ~long if too_long != "cut" else ~long | ((heads >= 0) & (heads < seq_len))
    slots = np.minimum(lengths[fits] - 1, seq_len)
    return Chosen(places[fits], slots, int((~fits).sum()), int((long & fits).sum()))


def example_origins(kept: Kept, places: Iterable[int], seq_len: int, answers: int) -> list[Origin]:
    """Return the examples of a sequence as its documents. answers: the examples of a record, 2 for pairs."""
    found: list[Origin] = []
    at = 0
    for place in places:
        number = int(np.count_nonzero(kept.held[:place] == 0)) // answers
        found.append(Origin(at, number))
        at += min(int(kept.lengths[place]) - 1, seq_len)
    return found


def cut_left(one: Example, longest: int, bos_id: int | None) -> Example:
    """Return an example truncated to `longest` ids: its system turn (or BOS) and its last ids."""
    if one.ids.size <= longest:
        return one
    head = max(one.head, int(one.ids[0] == bos_id))
    last = one.ids.size - (longest - head)
    ids, counts = (np.concatenate([part[:head], part[last:]]) for part in (one.ids, one.counts))
    return Example(ids, counts, head)


class ChatRows:
    """Packed sequences by sample index. Each epoch has all examples; permutations swap examples of equal lengths.

    A sequence is a pure function of (seed, index). A resumed run needs only the index, and each rank finds its own
    sequences.
    """

    core = None
    parts = PARTS

    def __init__(
        self,
        kept: Kept,
        found: Chosen,
        split: Split,
        shape: RowShape,
        shuffled: bool,
        bos_id: int | None,
        find: FindPlaces,
    ) -> None:
        """Pack the examples. find: returns the files of training examples by their numbers."""
        self.shape, self._kept, self._bos_id, self._find = shape, kept, bos_id, find
        self._wraps, self._shuffled = split == "train", shuffled and split == "train"
        order = falling(found.slots)
        slots = found.slots[order]
        self._examples = found.places[order]
        first = np.flatnonzero(np.diff(slots, prepend=-1))
        group = np.repeat(np.arange(first.size), np.diff(np.append(first, slots.size)))
        self._groups = np.stack([first[group], np.diff(np.append(first, slots.size))[group]], axis=1)
        self._rows = best_fit(slots, shape.seq_len)
        if not self._shuffled:  # keep the order of their first examples
            self._rows.sort(key=lambda row: min(self._examples[place] for place in row))
        self._starts = kept.starts()
        self._file = BoundedFile(kept.folder / IDS, reads_again=True)

    @property
    def rows(self) -> int:
        """The number of sequences in an epoch; it is the same in each epoch."""
        return len(self._rows)

    def batches(self, epochs: int) -> int:
        """Return the number of whole batches in `epochs` epochs."""
        return epochs * self.rows // self.shape.batch_size

    def examples(self, sample: int) -> list[Example]:
        """Return the examples of a sequence, truncated to T + 1 ids; an empty list after the end of a validation."""
        return [self._read(place) for place in self._places(sample)]

    def origins(self, samples: Sequence[int], *, files: bool) -> list[list[Origin]]:
        """Return the examples of each sample as its documents, as Located.origins does."""
        length = self.shape.seq_len
        found = [example_origins(self._kept, self._places(sample), length, 1) for sample in samples]
        return with_places(found, self._find if files else None)

    def _places(self, sample: int) -> list[int]:
        """Return the indices of the examples of a sequence."""
        epoch, row = divmod(sample, max(1, self.rows))
        if epoch and not self._wraps:
            return []
        if self._shuffled:
            row = _core.permute(row, self.rows, self.shape.seed, "chat.rows", epoch)
        return [self._place(place, epoch) for place in self._rows[row]]

    def first(self) -> Example:
        """Return the first example in the files."""
        return self._read(int(self._examples.min()))

    def _read(self, place: int) -> Example:
        one = self._kept.example(self._file, place, self._starts)
        return cut_left(one, self.shape.seq_len + 1, self._bos_id)

    def _place(self, place: int, epoch: int) -> int:
        """Return the index of the example at a place in the order of lengths.

        A permutation swaps examples of equal lengths.
        """
        if self._shuffled:
            first, count = self._groups[place].tolist()
            place = first + _core.permute(place - first, count, self.shape.seed, "chat.examples", epoch)
        return int(self._examples[place])

    def arrays(self, first_sample: int, n_samples: int) -> dict[str, Int32]:
        """Return inputs, targets (-1: no loss), positions from 0 in each example, and segment numbers from 1."""
        return arrays_of(
            map(self.examples, range(first_sample, first_sample + n_samples)), self.shape.seq_len
        )


def arrays_of(rows: Iterable[Sequence[Example]], seq_len: int) -> dict[str, Int32]:
    """Return the arrays [n, seq_len] of sequences, each with its examples one after another."""
    found = list(rows)
    shape = (len(found), seq_len)
    inputs, positions, segments = (np.zeros(shape, np.int32) for _ in range(3))
    targets = np.full(shape, -1, np.int32)
    for i, examples in enumerate(found):
        at = 0
        for segment, one in enumerate(examples, 1):
            here = slice(at, at := at + one.ids.size - 1)
            inputs[i, here] = one.ids[:-1]
            targets[i, here] = np.where(one.counts[1:], one.ids[1:], -1)
            positions[i, here] = np.arange(one.ids.size - 1)
            segments[i, here] = segment
    return {"inputs": inputs, "targets": targets, "positions": positions, "segments": segments}


def best_fit(lengths: Int64, capacity: int) -> list[list[int]]:
    """Return for each sequence the indices of its examples in the length order.

    lengths: [n], descending, each from 1 to capacity. An example goes into the first sequence in which it leaves the
    least space, or into a new one. The packing therefore depends only on the lengths.
    """
    rows: list[list[int]] = []
    sizes: list[int] = []  # the distinct sizes of free space, ascending
    by_size: dict[int, list[int]] = {}  # sequences by free space, as heaps
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
    """Return the indices that sort the lengths in descending order; equal lengths keep their order."""
    order: Int64 = np.argsort(-lengths, kind="stable")
    return order
