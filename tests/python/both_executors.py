"""The comparison of the planned and the immediate executor: equal losses and gradients, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from mudd_core import Model
from mudd_core.base.types import Array

Results = tuple[float, dict[str, Array]]


def same(one: Results, other: Results) -> bool:
    """Return True if losses and gradients are equal, bit for bit."""
    (loss, gradients), (again, others) = one, other
    return (
        loss == again
        and gradients.keys() == others.keys()
        and all(np.array_equal(gradients[name], others[name]) for name in gradients)
    )


def in_both_executors(model: Model, batch: Mapping[str, npt.ArrayLike], shards: int = 1) -> Results:
    """Return the loss and the gradients of a batch, which both executors must compute with the same bits."""
    planned = model.loss_and_gradients(batch, shards=shards)
    assert same(planned, model.loss_and_gradients_immediate(batch, shards=shards))
    return planned
