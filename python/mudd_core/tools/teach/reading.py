"""A teacher's pass over the data: the likeliest tokens of each target, one example or window after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from mudd_core.base.errors import StopRequestedError, UserError
from mudd_core.base.show.waiting import Pace
from mudd_core.base.surroundings import notes_stream
from mudd_core.base.types import Array, Float32, Int32
from mudd_core.data.cache.teacher_file import Block, Key
from mudd_core.data.pipelines import Prepared, RowShape
from mudd_core.data.pipelines.chat_data import ChatData
from mudd_core.data.pipelines.taught import SPLITS, example_parts, ordered_rows, window_key
from mudd_core.engine.model import Model
from mudd_core.run.loop import signals

_ROWS = 16  # targets whose logits are sorted at once


@dataclass
class Reading:
    """A teacher's pass over the data. mass: the summed probability of the kept tokens so far."""

    data: Prepared
    shape: RowShape
    model: Model
    kept: int
    vocab_size: int
    mass: float = 0.0
    done: set[Key] = field(default_factory=set)

    @property
    def unit(self) -> str:
        """The name of a block."""
        return "examples" if isinstance(self.data, ChatData) else "sequences"

    def counted(self) -> tuple[int, int]:
        """Return (targets, blocks) of the file."""
        sizes = [int(counted.size) for _, _, counted in self._parts()]
        return sum(sizes), len(sizes)

    def blocks(self) -> Iterator[Block]:
        """Yield the rows of the file. Raise StopRequestedError after a signal."""
        last: Mapping[str, Array] | None = None
        for key, arrays, counted in self._parts():
            if reason := signals.stop_reason():
                raise StopRequestedError(f"[teach] stopped by {reason}; no file was written")
            if arrays is not last:
                logits, last = self.model.logits(arrays)[0], arrays
            ids_NK, log_probs_NK = likeliest(logits, counted, self.kept, self.vocab_size)
            self.mass += float(np.exp(log_probs_NK.astype(np.float64)).sum())
            yield Block(key, ids_NK, log_probs_NK)

    def shown_blocks(self, count: int) -> Iterator[Block]:
        """Yield the rows of the file, and write to standard error how many of `count` blocks are done."""
        pace, stream = Pace(), notes_stream()
        for done, block in enumerate(self.blocks(), 1):
            yield block
            if pace.is_due():
                print(f"{done:,} of {count:,} {self.unit}", file=stream, flush=True)

    def _parts(self) -> Iterator[tuple[Key, Mapping[str, Array], Array]]:
        """Yield for each block its name, the arrays of its sequence, and the positions of its targets."""
        self.done.clear()
        for split in SPLITS:
            rows = ordered_rows(self.data, split, self.shape)
            for sample in range(rows.rows):
                arrays = rows.arrays(sample, 1)
                if not isinstance(self.data, ChatData):
                    key = window_key(split, sample * self.shape.seq_len)
                    yield key, arrays, np.flatnonzero(arrays["targets"][0] >= 0)
                    continue
                for part in example_parts(arrays):
                    if part.key in self.done:
                        continue
                    self.done.add(part.key)
                    counted = np.flatnonzero(arrays["targets"][0, part.at] >= 0) + part.at.start
                    yield part.key, arrays, counted


def likeliest(logits: Float32, rows: Array, kept: int, below: int) -> tuple[Int32, Float32]:
    """Return the ids [n, kept] of the largest logits below `below`, ascending, and their log-probabilities.

    logits: [T, V]. rows: [n], the rows to read. Raise UserError for logits that are not finite.
    """
    ids, log_probs = np.empty((len(rows), kept), np.int32), np.empty((len(rows), kept), np.float32)
    for begin in range(0, len(rows), _ROWS):
        here = slice(begin, begin + _ROWS)
        found = logits[rows[here]].astype(np.float64)
        largest = found.max(-1, keepdims=True)
        log_sum = largest + np.log(np.exp(found - largest).sum(-1, keepdims=True))
        if not np.isfinite(log_sum).all():
            raise UserError("[teach] --base: expected finite logits, got a model whose logits are not finite")
        best = np.argpartition(-found[:, :below], kept - 1, axis=-1)[:, :kept]
        ids[here] = np.sort(best, axis=-1)
        log_probs[here] = np.take_along_axis(found, ids[here], -1) - log_sum
    return ids, log_probs
