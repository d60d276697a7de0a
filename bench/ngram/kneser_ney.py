"""Interpolated modified Kneser-Ney language models of any order over token ids, in NumPy.

Chen and Goodman, "An empirical study of smoothing techniques for language modeling" (1999), section 4.3:
three discounts per order from the counts of counts, continuation counts below the highest order, and
interpolation down to the uniform distribution over the vocabulary.

Documents are separated: order - 1 end-of-document tokens precede each one, so a context never reaches into the previous
document. N-grams that start with such a token keep their raw counts, because they have no left neighbour.

Each n-gram has a dense index, computed order by order: key = index of its prefix * V + last token. Keys therefore fit
into 64 bits at any order, and counting is sorting.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def pad_documents(ids: NDArray[Any], eos: int, order: int) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the stream with order - 1 eos tokens before every document, and the mask of its real tokens."""
    ids = ids.astype(np.int64)
    pads = max(order - 1, 1)
    ends = np.nonzero(ids[:-1] == eos)[0] + 1
    # The final eos of a document is also the first pad of the next document.
    at = np.concatenate([np.zeros(pads, np.int64), np.repeat(ends, pads - 1)])
    stream = np.insert(ids, at, eos)
    real = np.insert(np.ones(ids.size, bool), at, False)
    return stream, real


@dataclass(frozen=True)
class Level:
    """All n-grams of one order, sorted by key: arrays over n-grams and over their contexts."""

    keys: Ints
    discounted: Floats  # (count - discount) / total of the context: the first term of the interpolation
    backoff: Floats  # weight of the lower order, per context; 1 for a context that was never seen
    discounts: tuple[float, float, float]


class KneserNey:
    """Model of P(token | up to order - 1 previous tokens)."""

    def __init__(self, train: NDArray[Any], vocab: int, eos: int, order: int) -> None:
        """Count n-grams. train: ids [N] with one eos after each document."""
        if train.size == 0 or int(train.max()) >= vocab:
            raise ValueError(f"[kneser_ney] train: expected ids below {vocab}, got {train.size} ids")
        self.vocab, self.eos, self.order = vocab, eos, order
        stream, real = pad_documents(train, eos, order)
        keys, number = self._number_all(stream)
        self.levels = [self._level(k, stream, real, keys, number) for k in range(1, order + 1)]

    def _number_all(self, stream: Ints) -> tuple[list[Ints], list[Ints]]:
        """Return for each order k the sorted keys of all k-grams, and for each position the index of the k-gram that
        ends there.

        Positions before the first whole k-gram have -1; they are padding, never targets.
        """
        all_keys: list[Ints] = []
        numbers: list[Ints] = [np.zeros(stream.size, np.int64)]  # the empty n-gram has index 0
        for k in range(1, self.order + 1):
            prefix = np.full(stream.size, -1, np.int64)
            prefix[1:] = numbers[-1][:-1]
            if k == 1:
                prefix[:] = 0
            fits = prefix >= 0
            unique, inverse = np.unique(prefix[fits] * self.vocab + stream[fits], return_inverse=True)
            number = np.full(stream.size, -1, np.int64)
            number[fits] = inverse
            all_keys.append(unique)
            numbers.append(number)
        return all_keys, numbers

    def _adjusted_counts(
        self, k: int, stream: Ints, real: NDArray[np.bool_], keys: list[Ints], number: list[Ints]
    ) -> Ints:
        """Return the counts of the k-grams that end in a real token: raw at the highest order, else distinct left
        neighbours.
        """
        size = keys[k - 1].size
        raw = np.bincount(number[k][real], minlength=size)
        if k == self.order:
            return raw.astype(np.int64)
        targets = np.nonzero(real)[0]
        first_of = np.unique(number[k + 1][targets], return_index=True)[1]  # one position per (k+1)-gram
        continuation = np.bincount(number[k][targets[first_of]], minlength=size)
        if k == 1:
            return continuation.astype(np.int64)
        starts = np.zeros(size, bool)
        starts[number[k][targets[stream[targets - (k - 1)] == self.eos]]] = True
        return np.where(starts, raw, continuation).astype(np.int64)

    def _level(
        self, k: int, stream: Ints, real: NDArray[np.bool_], keys: list[Ints], number: list[Ints]
    ) -> Level:
        count = self._adjusted_counts(k, stream, real, keys, number)
        ones, twos, threes, fours = (int((count == c).sum()) for c in (1, 2, 3, 4))
        y = ones / max(ones + 2 * twos, 1)
        steps = ((1, ones, twos), (2, twos, threes), (3, threes, fours))
        discounts = tuple(
            min(max(i - (i + 1) * y * b / a, 0.0), i) if a and b else i * 0.5 for i, a, b in steps
        )
        discount = np.array([0.0, *discounts])[np.minimum(count, 3)]
        context = keys[k - 1] // self.vocab
        contexts = keys[k - 2].size if k > 1 else 1
        total = np.bincount(context, count, contexts)
        left = np.bincount(context, discount, contexts)
        backoff = np.divide(left, total, out=np.ones_like(total), where=total > 0)
        share = np.divide(count - discount, total[context], out=np.zeros(count.size), where=count > 0)
        return Level(keys[k - 1], share, backoff, (discounts[0], discounts[1], discounts[2]))

    def _find(self, k: int, prefix: Ints, token: Ints) -> Ints:
        """Return the index of the k-gram (prefix index, token), -1 if unseen."""
        keys = self.levels[k - 1].keys
        key = prefix * self.vocab + token
        at = np.minimum(np.searchsorted(keys, key), keys.size - 1)
        return np.where((prefix >= 0) & (keys[at] == key), at, -1)

    def probabilities(self, contexts: Ints, tokens: Ints) -> Floats:
        """Return P of tokens [N] after contexts [N, order - 1]; the last column is the previous token."""
        p = np.full(tokens.size, 1.0 / self.vocab)
        for k in range(1, self.order + 1):
            prefix = np.zeros(tokens.size, np.int64)
            for j in range(1, k):
                prefix = self._find(j, prefix, contexts[:, contexts.shape[1] - k + j])
            number = self._find(k, prefix, tokens)
            level = self.levels[k - 1]
            share = np.where(number >= 0, level.discounted[number], 0.0)
            p = share + np.where(prefix >= 0, level.backoff[prefix], 1.0) * p
        return p

    def contexts(self, ids: NDArray[Any]) -> tuple[Ints, Ints]:
        """Return (contexts [N, order - 1], tokens [N]) of all ids [N]; contexts stay inside their document."""
        stream, real = pad_documents(ids, self.eos, self.order)
        at = np.nonzero(real)[0]
        back = np.arange(self.order - 1, 0, -1)
        return stream[at[:, None] - back[None, :]], stream[at]

    def nats(self, ids: NDArray[Any]) -> Floats:
        """Return -log P of every token of ids [N] given the previous tokens of its document."""
        contexts, tokens = self.contexts(ids)
        return -np.log(self.probabilities(contexts, tokens))

    def worst_sum_error(self, contexts: Ints) -> float:
        """Return the largest |1 - sum over the vocabulary of P| for contexts [n, order - 1]."""
        every = np.arange(self.vocab, dtype=np.int64)
        sums = [self.probabilities(np.broadcast_to(c, (self.vocab, c.size)), every).sum() for c in contexts]
        return float(abs(np.array(sums) - 1.0).max())
