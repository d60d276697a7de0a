"""Scores of continuations: the summed log-probability, and whether each token is the likeliest one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mudd_core.base.types import Float32
from mudd_core.config.families import family_of
from mudd_core.engine.batch_check import checked_ids
from mudd_core.engine.model import Model
from mudd_core.engine.scoring.graphs import Graphs
from mudd_core.engine.scoring.shared import LEAST, Ids, depends_on_others, groups_of, longest_of
from mudd_core.engine.scoring.walk import Found, Walk

TOKENS = 4096  # of a graph run, unless a sequence is longer
_STATES = 2048  # final states of a graph of losses
_LOSSES = 256  # most sequences of a graph of losses


@dataclass(frozen=True)
class Score:
    """The result for a continuation. log_prob: the sum over its tokens, in nats. greedy: each is the likeliest one."""

    log_prob: float
    greedy: bool


@dataclass(frozen=True)
class _Wanted:
    """The targets of a request, and the first of their positions in a sequence."""

    request: int
    first: int
    targets: Ids


class Scorer:
    """Scores continuations by a model. Bits depend neither on the other requests nor on the size of batches.

    sequences: most sequences of a graph run; 0: only TOKENS limits it. shares: compute the prefixes that sequences have
    in common once, if the model decodes with a KV cache.
    """

    def __init__(self, model: Model, sequences: int = 0, *, shares: bool = True) -> None:
        if model.inside.is_patched:
            raise ValueError(
                "[score] model: expected one without patches; leave the `with model.patch(...)` block"
            )
        self._model, self._sequences = model, sequences
        self._graphs = Graphs(model)
        self._alone = depends_on_others(model.config)
        self._shares = shares and family_of(model.config).decodes and not self._alone
        self.computed = 0  # tokens of the last call that the layers computed, with padding
        self.scored = 0  # tokens of all its sequences

    def scores(
        self,
        requests: Sequence[tuple[Sequence[int], Sequence[int]]],
        done: Callable[[int], None] = lambda count: None,
    ) -> list[Score]:
        """Return the score of each request, which is (context, continuation).

        Contexts lose their oldest ids if both together have more than max_seq_len + 1 tokens. done: called with a
        number of further scores. Raise ValueError for an empty context or continuation, or one that is too long.
        """
        self.computed = self.scored = 0
        with self._model.in_use:
            inputs = [self._inputs(*request) for request in requests]
            sequences, number = (inputs, range(len(inputs))) if self._alone else longest_of(inputs)
            wanted: list[list[_Wanted]] = [[] for _ in sequences]
            for at, (ids, (_, targets)) in enumerate(zip(inputs, requests, strict=True)):
                self.scored += len(ids)
                wanted[number[at]].append(_Wanted(at, len(ids) - len(targets), tuple(targets)))
            found = [Score(0.0, False)] * len(requests)
            waiting: list[tuple[_Wanted, Float32]] = []
            for sequence, states in self._states(sequences, wanted):
                waiting += [
                    (one, states(one.first, one.first + len(one.targets))) for one in wanted[sequence]
                ]
                if sum(len(one.targets) for one, _ in waiting) >= _STATES:
                    self._finish(waiting, found, done)
            self._finish(waiting, found, done)
        return found

    def _inputs(self, context: Sequence[int], targets: Sequence[int]) -> Ids:
        longest = self._model.config.max_seq_len
        if not context or not 0 < len(targets) <= longest:
            raise ValueError(
                f"[score] request: expected a context and 1 to {longest} further tokens, got {len(context)} and "
                f"{len(targets)}"
            )
        ids = (*context, *targets)[-(longest + 1) :]
        for part in (ids[:-1], ids[1:]):
            checked_ids(part, "requests", self._model.config)
        return ids[:-1]

    def _states(self, sequences: Sequence[Ids], wanted: Sequence[Sequence[_Wanted]]) -> Iterator[Found]:
        """Yield the number of each sequence with its final states."""
        if not self._shares:
            yield from self._plain(sequences, range(len(sequences)))
            return
        groups = groups_of(sequences, 0)
        yield from self._plain(sequences, [group.first for group in groups if group.end - group.first == 1])
        walk = Walk(self._graphs, sequences, self._model.config)
        for group in groups:
            if group.end - group.first > 1:
                yield from walk.group(group)
        self.computed += walk.computed

    def _plain(self, sequences: Sequence[Ids], chosen: Sequence[int]) -> Iterator[Found]:
        """Yield the states of sequences in batches, the longest first."""
        order = sorted(chosen, key=lambda at: -len(sequences[at]))
        while order:
            longest = len(sequences[order[0]])
            most = 1 if self._alone else max(1, min(TOKENS // longest, self._sequences or len(order)))
            most = _similar([len(sequences[at]) for at in order[:most]])
            some, order = order[:most], order[most:]
            length = longest if self._alone else padded(longest, self._model.config.max_seq_len)
            ids = np.zeros((most, length), np.int32)
            for row, at in enumerate(some):
                ids[row, : len(sequences[at])] = sequences[at]
            self.computed += ids.size
            states = self._graphs.states(ids)
            for row, at in enumerate(some):
                yield at, partial(_copied, states[row])

    def _finish(
        self, waiting: list[tuple[_Wanted, Float32]], found: list[Score], done: Callable[[int], None]
    ) -> None:
        """Score the requests that wait, and remove them."""
        waiting.sort(key=lambda one: len(one[0].targets))
        while waiting:
            length = _power(len(waiting[-1][0].targets))
            count = min(_LOSSES, _power(max(1, _STATES // length)), _power(len(waiting)))
            some = waiting[-count:]
            del waiting[-count:]
            states = np.zeros((count, length, some[0][1].shape[-1]), np.float32)
            targets = np.full((count, length), -1, np.int32)
            for row, (one, rows) in enumerate(some):
                states[row, : len(rows)] = rows
                targets[row, : len(rows)] = one.targets
            nats, counted, guessed = self._graphs.losses(states, targets)
            for row, (one, _) in enumerate(some):
                found[one.request] = Score(-float(nats[row]), bool(guessed[row] == counted[row]))
            done(len(some))


def _similar(lengths: Sequence[int]) -> int:
    """Return how many of the descending lengths are worth the padding that one graph run needs."""
    spare = LEAST
    for count, length in enumerate(lengths):
        spare -= lengths[0] - length - length // 8
        if spare < 0:
            return count
    return len(lengths)


def padded(length: int, longest: int) -> int:
    """Return the length of a batch, rounded up so that few graphs are planned; at most `longest`."""
    step = 8 if length <= 64 else 16 if length <= 256 else 32
    return min(longest, -(-length // step) * step)


def _power(count: int) -> int:
    """Return the smallest power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()


def _copied(states: Float32, first: int, end: int) -> Float32:
    return np.array(states[first:end])
