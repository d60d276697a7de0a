"""The batch of a Trainer's next update: its text, the loss of each token, and the values inside the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.errors import DataEndError, UserError
from mudd_core.base.in_use import InUse, alone
from mudd_core.base.types import Array, Float32
from mudd_core.engine.evaluation import piece_size, pieces
from mudd_core.run.build.batch_rows import BatchRow, batch_rows
from mudd_core.run.loop.session import Session

if TYPE_CHECKING:
    from mudd_core.engine.inside import Captured
    from mudd_core.engine.model import Model

_LOGITS_AT_ONCE = 1 << 26  # elements of the logits in one graph run


class NextBatch:
    """The part of Trainer that looks at the batch of the next update. Nothing here changes the run."""

    _run: Session
    in_use: InUse

    @alone
    def batch_text(self, *, files: bool = False) -> list[BatchRow]:
        """Return the sequences of the next update: text, source and documents of each, as far as the data name them.

        files: also find the file of each document and its record in the file. All of the data may be read for this.
        """
        arrays, first = self._next_batch()
        run = self._run
        rows, tokenizer = run.engine.batcher, run.components.tokenizer
        return batch_rows(run.config, rows, tokenizer, arrays, first, files=files)

    @alone
    def token_losses(self) -> Float32:
        """Return the loss of each target of the next batch in nats, before the update: float32 [B, T].

        The loss is the cross-entropy without dropout, label smoothing, a z-loss and the losses of a router. It is 0 at
        targets that have no loss.
        """
        arrays, _ = self._next_batch()
        return token_losses(self._run.components.model, arrays)

    @alone
    def capture(self, names: str | Sequence[str] = "*", *, gradients: bool = False) -> Captured:
        """Return values inside the model on the next batch, before the update.

        names, gradients: as for Model.capture.
        """
        arrays, _ = self._next_batch()
        ids = {name: array for name, array in arrays.items() if name in _IDS}
        return self._run.components.model.capture(ids, names, gradients=gradients)

    def _next_batch(self) -> tuple[Mapping[str, Array], int]:
        """Return the arrays of the next batch, and the index of its first sample."""
        run = self._run
        run.need_text()
        run.engine.settle()
        size = run.config.train.batch_size
        first = run.state.guard.batch_index(run.state.step_done) * size
        try:
            return run.engine.batcher.arrays(first, size), first
        except DataEndError as error:
            raise UserError(
                f"[Trainer] the data have no batch after step {run.state.step_done}: {error}"
            ) from None


_IDS = ("inputs", "targets", "positions", "segments", "key_mask")


def token_losses(model: Model, arrays: Mapping[str, Array]) -> Float32:
    """Return the cross-entropy of each target in nats, float32 [B, T]; 0 for a target without a loss."""
    ids = {name: array for name, array in arrays.items() if name in _IDS}
    rows, length = ids["inputs"].shape
    most = max(1, _LOGITS_AT_ONCE // (length * model.config.vocab_size))
    size, _ = piece_size(model.config, rows, min(most, model.evaluated_at_once or rows))
    found = [_cross_entropy(model.logits(piece), piece["targets"]) for piece in pieces(ids, size)]
    return np.concatenate(found)[:rows]


def _cross_entropy(logits: Float32, targets: Array) -> Float32:
    losses = np.zeros(targets.shape, np.float32)
    for row, (scores, wanted) in enumerate(zip(logits, targets, strict=True)):
        at = np.flatnonzero(wanted >= 0)
        chosen = scores[at].astype(np.float64)
        top = chosen.max(axis=1, keepdims=True)
        log_sum = np.log(np.exp(chosen - top).sum(axis=1)) + top[:, 0]
        losses[row, at] = log_sum - chosen[np.arange(len(at)), wanted[at]]
    return losses
