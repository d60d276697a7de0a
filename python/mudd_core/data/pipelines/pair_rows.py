"""Pairs of answers as sequences: sample 2i has chosen answers with their prompts, and sample 2i + 1 the rejected ones.

Both have the pairs in the same order, by default one. Each sequence is padded to the length of the sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from mudd_core import _core
from mudd_core.base.types import Array, Float64, Int32, Int64
from mudd_core.data.chat.kept import IDS, Kept
from mudd_core.data.chat.masks import Example
from mudd_core.data.documents.origins import FindPlaces, Origin, with_places
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.pipelines.chat_rows import (
    PARTS,
    Chosen,
    arrays_of,
    best_fit,
    chosen,
    cut_left,
    example_origins,
    falling,
)
from mudd_core.data.rows import NLL, REFERENCE, REFERENCE_COLUMNS, RowShape
from mudd_core.data.sources.corpus import Split


def chosen_pairs(kept: Kept, split: Split, seq_len: int, too_long: str) -> Chosen:
    """Return the answers of a split whose pair fits, chosen and rejected by turns. dropped, cut: numbers of pairs."""
    every = np.flatnonzero(kept.held == (split == "valid"))
    found = chosen(kept, split, seq_len, too_long)
    fits = np.isin(every, found.places).reshape(-1, 2).all(1)
    places = every.reshape(-1, 2)[fits].reshape(-1)
    long = (kept.lengths[places] > seq_len + 1).reshape(-1, 2).any(1)
    slots = found.slots[np.isin(found.places, places)]
    return replace(found, places=places, slots=slots, dropped=int((~fits).sum()), cut=int(long.sum()))


class PairRows:
    """Pairs by sample index. Each epoch has all pairs in another order; a pair is a function of (seed, index).

    reference: the reference's log-probability of each kept answer, in nats; None if the loss needs none. find: returns
    the files of training pairs by their numbers. of_all: the
    loss also has the negative log-likelihood of all tokens of each chosen conversation. most: pairs in two sequences.
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
        reference: Float64 | None,
        find: FindPlaces,
        *,
        of_all: bool = False,
        most: int = 1,
    ) -> None:
        self.shape, self._kept, self._bos_id, self._find = shape, kept, bos_id, find
        self._wraps, self._shuffled = split == "train", shuffled and split == "train"
        self._places, self._slots, self._reference = found.places, found.slots, reference
        self._of_all, self._weights = of_all, dict[int, float]()  # by the first sample of a batch
        self._most, self._pairs = most, packed_pairs(found.slots, shape.seq_len, most)
        self._starts = kept.starts()
        self._file = BoundedFile(kept.folder / IDS, reads_again=True)

    @property
    def rows(self) -> int:
        """The number of sequences in an epoch."""
        return 2 * len(self._pairs)

    def batches(self, epochs: int) -> int:
        """Return the number of whole batches in `epochs` epochs."""
        return epochs * self.rows // self.shape.batch_size

    def examples(self, sample: int) -> list[Example]:
        """Return the examples of a sequence, truncated to T + 1 ids; an empty list after the end of a validation."""
        return [self._read(int(self._places[at])) for at in self._indices(sample)]

    def origins(self, samples: Sequence[int], *, files: bool) -> list[list[Origin]]:
        """Return the answers of each sample as its documents, as Located.origins does."""
        places = ([int(self._places[at]) for at in self._indices(sample)] for sample in samples)
        found = [example_origins(self._kept, some, self.shape.seq_len, 2) for some in places]
        return with_places(found, self._find if files else None)

    def first(self) -> Example:
        """Return the first chosen answer in the files, with its prompt."""
        return self._read(int(self._places.min()))

    def _read(self, place: int) -> Example:
        one = self._kept.example(self._file, place, self._starts)
        return cut_left(one, self.shape.seq_len + 1, self._bos_id)

    def _indices(self, sample: int) -> list[int]:
        """Return the indices of a sample's answers among those that fit; none after the end of a validation."""
        epoch, row = divmod(sample, max(1, self.rows))
        if epoch and not self._wraps:
            return []
        number, side = divmod(row, 2)
        if self._shuffled:
            number = _core.permute(number, len(self._pairs), self.shape.seed, "chat.pairs", epoch)
        return [2 * pair + side for pair in self._pairs[number]]

    def _weight(self, sample: int) -> float:
        """Return P / N of a sample's batch: the number of its pairs, and of the targets in their chosen conversations.

        The mean over the pairs of P / N times the sum over a conversation is the mean over all N targets.
        """
        size = self.shape.batch_size
        first = sample // size * size
        if first not in self._weights:
            found = [at for one in range(first, first + size, 2) for at in self._indices(one)]
            self._weights = {first: len(found) / sum(int(self._slots[at]) for at in found)}
        return self._weights[first]

    def arrays(self, first_sample: int, n_samples: int) -> dict[str, Array]:
        """Return the arrays of ChatRows, and the float32 arrays of the loss: `reference` [n, 3 K], `nll` [n, 5 K].

        K: the most pairs of two sequences. The sum of three columns is a float64 value.
        """
        samples = range(first_sample, first_sample + n_samples)
        rows = [self.examples(sample) for sample in samples]
        found: dict[str, Array] = {}
        if self._of_all:
            found[NLL] = self._nll(samples, rows)
            rows = [
                row if sample % 2 else list(map(_whole, row))
                for sample, row in zip(samples, rows, strict=True)
            ]
        found |= arrays_of(rows, self.shape.seq_len)
        if self._reference is not None:
            values = np.zeros((len(rows), self._most))
            for n, sample in enumerate(samples):
                places = self._places[self._indices(sample)]
                values[n, : places.size] = self._reference[places]
            found[REFERENCE] = thirds(values.reshape(-1)).reshape(len(rows), -1)
        return found

    def _nll(self, samples: range, rows: list[list[Example]]) -> Array:
        """Return the positions of the targets of each answer, and the weight of all targets of a chosen one."""
        spans = np.zeros((len(rows), self._most, 2), np.float32)
        weights = np.zeros((len(rows), self._most))
        for n, (sample, row) in enumerate(zip(samples, rows, strict=True)):
            begin = 0
            for k, one in enumerate(row):
                places = np.flatnonzero(one.counts[1:])
                spans[n, k] = begin + places[0], begin + places[-1] + 1
                weights[n, k] = 0.0 if sample % 2 else self._weight(sample)
                begin += one.ids.size - 1
        columns = thirds(weights.reshape(-1)).reshape(len(rows), self._most, -1)
        return np.concatenate([spans, columns], axis=2).reshape(len(rows), -1)


def packed_pairs(slots: Int64, seq_len: int, most: int) -> list[list[int]]:
    """Return the numbers of the pairs that share two sequences of T ids, at most `most`, by best fit.

    slots: the input ids of the answers, chosen and rejected by turns. A pair takes as much of both sequences as its
    longer answer, so its answers have the same number in both. With most=1 the pairs keep their order.
    """
    if most == 1:
        return [[pair] for pair in range(slots.size // 2)]
    longer = slots.reshape(-1, 2).max(1)
    order = falling(longer)
    rows = best_fit(longer[order], seq_len)
    return [order[row[at : at + most]].tolist() for row in rows for at in range(0, len(row), most)]


def _whole(one: Example) -> Example:
    """Return an example with all ids as targets."""
    return replace(one, counts=np.ones_like(one.counts))


def answers_at(
    kept: Kept, places: list[int], samples: int, seq_len: int, bos_id: int | None
) -> dict[str, Int32]:
    """Return the arrays [samples, T] of the answers at these places, then of empty sequences."""
    starts = kept.starts()
    with BoundedFile(kept.folder / IDS, reads_again=True) as file:
        rows = [[cut_left(kept.example(file, at, starts), seq_len + 1, bos_id)] for at in places]
    return arrays_of([*rows, *([] for _ in range(samples - len(rows)))], seq_len)


def thirds(values: npt.ArrayLike) -> Array:
    """Return float32 [n, 3] whose columns, added from the first, are exactly these float64 values."""
    rest: Float64 = np.array(values, np.float64)
    columns = []
    for _ in range(REFERENCE_COLUMNS):
        columns.append(rest.astype(np.float32))
        rest = rest - columns[-1]
    return np.stack(columns, 1)
