"""The training metrics of each source of a mixture (data.mix): of the last batch, and counts up to it.

The counts follow from the number of the batch, so a resumed run needs no stored state for them. The loss of a source is
summed in the order of the samples in the batch, so ranks and micro-batches change no bit of it.
"""

from __future__ import annotations

import numpy as np

from mudd_core.base.types import Float64, JsonObject
from mudd_core.config import Config
from mudd_core.data.pipelines.ids_data import FirstBatch
from mudd_core.data.pipelines.mixture.rows import MixedRows
from mudd_core.run.loop.evaluate import LN2
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.by_source import SourceLoss, count_columns, loss_columns
from mudd_core.run.records.engine import LoopEngine


class SourceMetrics:
    """The metrics of the sources in the updates of a run."""

    def __init__(self, config: Config, engine: LoopEngine, ranks: Ranks) -> None:
        self._engine, self._ranks = engine, ranks
        self._size, self._length = config.train.batch_size, config.train.seq_len

    def columns(self, number: int) -> JsonObject:
        """Return the entries of metrics.jsonl about the batch `number` (from 0), on which the last update was made.

        All ranks call it together.
        """
        sums, rows = self._batch_sums(), self._engine.batcher
        first, repeats = number * self._size, 1
        if isinstance(rows, FirstBatch):  # data.repeat_batch
            rows, first, repeats = rows.of, 0, number + 1
        assert isinstance(rows, MixedRows)
        sources, count = rows.sources(first, self._size), len(rows.names)
        nats, targets = (np.bincount(sources, weights=sums[:, i], minlength=count) for i in (0, 1))
        losses = {
            name: _loss(float(nats[i]), int(targets[i]), rows.bytes_per_target[i])
            for i, name in enumerate(rows.names)
        }
        read = [repeats * one for one in rows.counts(first + self._size)]
        epochs = [repeats * one for one in rows.epochs(first + self._size)]
        return loss_columns(losses) | count_columns(rows.names, read, epochs, self._length)

    def _batch_sums(self) -> Float64:
        """Return nats and targets of each sample of the whole batch, [B, 2]."""
        places, own = self._engine.sample_sums()
        sums = np.zeros((self._size, 2))
        for at, values in self._ranks.gathered([places, own.tolist()]):
            sums[at] = values
        return sums


def _loss(nats: float, targets: int, bytes_per_target: float) -> SourceLoss:
    loss = nats / targets if targets else np.nan
    return SourceLoss(loss, loss / LN2 / bytes_per_target if bytes_per_target else None, targets)
