"""The sequences of an update with the loss of each and of its documents, to explain a loss spike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mudd_core.base.types import Float32
from mudd_core.run.build.batch_rows import BatchRow, RowDocument
from mudd_core.run.loop.next_batch import NextBatch


@dataclass(frozen=True)
class DocumentLoss:
    """A document in a sequence. loss: the mean over its targets in nats."""

    document: RowDocument
    loss: float


@dataclass(frozen=True)
class RowLoss:
    """A sequence of an update. loss: the mean over its targets in nats. documents: the highest loss first."""

    row: BatchRow
    loss: float
    documents: tuple[DocumentLoss, ...]


def losses_by_document(trainer: NextBatch) -> list[RowLoss]:
    """Return the sequences of a Trainer's next update before it, the highest loss first.

    Sequences and documents without a target that has a loss are left out.
    """
    losses, rows = trainer.token_losses(), trainer.batch_text(files=True)
    found = [_row_loss(row, losses[row.row]) for row in rows if row.targets]
    return sorted(found, key=lambda one: -one.loss)


def _row_loss(row: BatchRow, losses: Float32) -> RowLoss:
    documents = [
        DocumentLoss(one, _mean(losses[one.start : one.end], one.targets))
        for one in row.documents
        if one.targets
    ]
    documents.sort(key=lambda one: -one.loss)
    return RowLoss(row, _mean(losses, row.targets), tuple(documents))


def _mean(losses: Float32, targets: int) -> float:
    return float(losses.sum(dtype=np.float64)) / targets
