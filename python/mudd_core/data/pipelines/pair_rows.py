"""Pairs of answers as sequences: sample 2i is the chosen answer of a pair with its prompt, sample 2i + 1 the rejected.

Each sequence has one example, padded to the length of the sequences.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mudd_core import _core
from mudd_core.base.types import Array, Float64, Int32
from mudd_core.data.chat.kept import IDS, Kept
from mudd_core.data.chat.masks import Example
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.pipelines.chat_rows import PARTS, Chosen, arrays_of, chosen, cut_left
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

    reference: the reference's log-probability of each kept answer, in nats; None if the loss needs none. of_all: the
    loss also has the negative log-likelihood of all tokens of each chosen conversation.
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
        *,
        of_all: bool = False,
    ) -> None:
        self.shape, self._kept, self._bos_id = shape, kept, bos_id
        self._wraps, self._shuffled = split == "train", shuffled and split == "train"
        self._places, self._slots, self._reference = found.places, found.slots, reference
        self._of_all, self._weights = of_all, dict[int, float]()  # by the first sample of a batch
        self._starts = kept.starts()
        self._file = BoundedFile(kept.folder / IDS, reads_again=True)

    @property
    def rows(self) -> int:
        """The number of sequences in an epoch, two for each pair."""
        return self._places.size

    def batches(self, epochs: int) -> int:
        """Return the number of whole batches in `epochs` epochs."""
        return epochs * self.rows // self.shape.batch_size

    def examples(self, sample: int) -> list[Example]:
        """Return the example of a sequence, truncated to T + 1 ids; an empty list after the end of a validation."""
        place = self._place(sample)
        return [] if place is None else [self._read(place)]

    def first(self) -> Example:
        """Return the first chosen answer in the files, with its prompt."""
        return self._read(int(self._places.min()))

    def _read(self, place: int) -> Example:
        one = self._kept.example(self._file, place, self._starts)
        return cut_left(one, self.shape.seq_len + 1, self._bos_id)

    def _place(self, sample: int) -> int | None:
        """Return the index of the answer of a sample among the kept ones; None after the end of a validation."""
        at = self._index(sample)
        return None if at is None else int(self._places[at])

    def _index(self, sample: int) -> int | None:
        """Return the index of the answer of a sample among those that fit; None after the end of a validation."""
        epoch, row = divmod(sample, max(1, self.rows))
        if epoch and not self._wraps:
            return None
        pair, side = divmod(row, 2)
        if self._shuffled:
            pair = _core.permute(pair, self.rows // 2, self.shape.seed, "chat.pairs", epoch)
        return 2 * pair + side

    def _weight(self, sample: int) -> float:
        """Return P / N of a sample's batch: the number of its pairs, and of the targets in their chosen conversations.

        The mean over the pairs of P / N times the sum over a conversation is the mean over all N targets.
        """
        size = self.shape.batch_size
        first = sample // size * size
        if first not in self._weights:
            found = [self._index(one) for one in range(first, first + size, 2)]
            slots = [int(self._slots[at]) for at in found if at is not None]
            self._weights = {first: len(slots) / sum(slots)}
        return self._weights[first]

    def arrays(self, first_sample: int, n_samples: int) -> dict[str, Array]:
        """Return the arrays of ChatRows, and the float32 arrays that the loss has: `reference` [n, 3], `nll` [n, 5].

        The sum of three columns is a float64 value.
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
            places = [self._place(sample) for sample in samples]
            found[REFERENCE] = thirds([0.0 if at is None else float(self._reference[at]) for at in places])
        return found

    def _nll(self, samples: range, rows: list[list[Example]]) -> Array:
        """Return the positions of the targets of each answer, and the weight of all targets of a chosen sample."""
        spans = np.zeros((len(rows), 2), np.float32)
        weights = [0.0] * len(rows)
        for n, (sample, row) in enumerate(zip(samples, rows, strict=True)):
            for one in row:
                places = np.flatnonzero(one.counts[1:])
                spans[n] = places[0], places[-1] + 1
                weights[n] = 0.0 if sample % 2 else self._weight(sample)
        return np.concatenate([spans, thirds(weights)], axis=1)


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


def thirds(values: list[float]) -> Array:
    """Return float32 [n, 3] whose columns, added from the first, are exactly these float64 values."""
    rest = np.array(values, np.float64)
    columns = []
    for _ in range(REFERENCE_COLUMNS):
        columns.append(rest.astype(np.float32))
        rest = rest - columns[-1]
    return np.stack(columns, 1)
