"""Evaluation of a batch in pieces: a graph of at most so many sequences, and bits that do not depend on how many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from mudd_core.base.types import Array
from mudd_core.config import ModelConfig, mixture_of
from mudd_core.engine.planned import Planned

_MOST = 1024  # logical shards that a graph can have: here each sequence is one
_FILLING = {"targets": -1}  # of the sequences behind the last one; other arrays take zeros


def piece_size(config: ModelConfig, rows: int, at_most: int) -> tuple[int, int]:
    """(sequences, logical shards) of the graph that evaluates batches of `rows` sequences of a model.

    Each sequence is a shard of its own, and the sums of sequences are added in order: the size of a piece changes no
    bits. at_most: sequences of a run of the training graph; 0: any number. A mixture whose capacity is that of a
    shard needs the whole batch.
    """
    mixture = mixture_of(config)
    if mixture is not None and mixture.capacity_factor > 0 and mixture.capacity_scope == "shard":
        return rows, 1
    most = min(rows, at_most or rows, _MOST)
    size = 1 << (most.bit_length() - 1)
    return size, size


def pieces(batch: Mapping[str, Array], size: int) -> Iterator[Mapping[str, Array]]:
    """The batch in pieces of `size` sequences, the last one filled up with sequences without targets."""
    rows = len(batch["inputs"])
    for first in range(0, rows, size):
        missing = max(0, first + size - rows)
        yield {
            name: np.pad(
                array[first : first + size], ((0, missing), (0, 0)), constant_values=_FILLING.get(name, 0)
            )
            if missing
            else array[first : first + size]
            for name, array in batch.items()
        }


def evaluated(planned: Planned, batch: Mapping[str, Array]) -> tuple[float, int, int]:
    """Summed nats, counted and guessed targets of a batch that goes through an evaluation graph in pieces."""
    loss, count, guessed = 0.0, 0, 0
    for piece in pieces(batch, planned.shape[0]):
        planned.fill(piece)
        planned.executor.run()
        sums, counts, hits = (planned.executor.get(number) for number in planned.outputs)
        for nats, targets in zip(sums, counts, strict=True):
            loss += float(nats)
            count += int(targets)
        guessed += int(hits[:, 0].sum(dtype=np.float64))
    return loss, count, guessed
