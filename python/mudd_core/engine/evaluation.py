"""Evaluation of a batch in pieces of a maximum size; the bits do not depend on the size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from mudd_core.base.types import Array
from mudd_core.config import ModelConfig, mixture_of
from mudd_core.engine.evaluation_sums import EvaluationSums
from mudd_core.engine.planned import Planned

_MOST = 1024  # most logical shards in a graph; in evaluation each sequence is a shard
# values that fill padding sequences after the last one; other arrays are filled with zeros
_FILLING = {"targets": -1}


def piece_size(config: ModelConfig, rows: int, at_most: int, *, of_pairs: bool = False) -> tuple[int, int]:
    """Return (sequences, logical shards) of the graph that evaluates batches of `rows` sequences.

    Each sequence is a separate shard, and the sums of sequences are added in order, so the size of a piece changes no
    bits. at_most: the sequences of a training graph run; 0: no limit. A mixture whose capacity is per shard needs the
    whole batch. of_pairs: a shard is a pair of sequences.
    """
    mixture = mixture_of(config)
    if mixture is not None and mixture.capacity_factor > 0 and mixture.capacity_scope == "shard":
        return rows, 1
    each = 2 if of_pairs else 1
    most = max(1, min(rows, at_most or rows, _MOST) // each)
    shards = 1 << (most.bit_length() - 1)
    return each * shards, shards


def pieces(batch: Mapping[str, Array], size: int) -> Iterator[Mapping[str, Array]]:
    """Yield the batch in pieces of `size` sequences, the last one padded with sequences without targets."""
    rows = len(batch["inputs"])
    for first in range(0, rows, size):
        missing = max(0, first + size - rows)
        yield {
            name: np.pad(
                array[first : first + size],
                ((0, missing), *((0, 0),) * (array.ndim - 1)),
                constant_values=_FILLING.get(name, 0),
            )
            if missing
            else array[first : first + size]
            for name, array in batch.items()
        }


def evaluated(planned: Planned, batch: Mapping[str, Array], *, of_pairs: bool = False) -> EvaluationSums:
    """Run the evaluation graph on pieces of a batch, and return the sums. of_pairs: its loss is of pairs of answers."""
    loss, count, guessed = 0.0, 0, 0
    divergence, agreed, margins = 0.0, 0, 0.0
    for piece in pieces(batch, planned.shape[0]):
        planned.fill(piece)
        planned.executor.run()
        sums, counts, hits, *further = (planned.executor.get(number) for number in planned.outputs)
        for nats, targets in zip(sums, counts, strict=True):
            loss += float(nats)
            count += int(targets)
        guessed += int(hits[:, 0].sum(dtype=np.float64))
        if of_pairs:
            for margin in hits[:, 1].tolist():
                margins += margin
            continue
        for nats, number in (pair for one in further for pair in one):
            divergence += float(nats)
            agreed += int(number)
    if of_pairs:
        return EvaluationSums(loss, count, guessed, margins=margins)
    if len(planned.outputs) > 3:
        return EvaluationSums(loss, count, guessed, divergence, agreed)
    return EvaluationSums(loss, count, guessed)
