"""Validation: the loss of the held-out text, every token after the first predicted once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

from mudd_core.run.records import Evaluator, Validation

LN2 = 0.6931471805599453


def evaluate(
    evaluator: Evaluator,
    batches: Iterable[Any],
    *,
    step: int,
    bytes_per_target: float,
    stop: Callable[[], bool] = lambda: False,
) -> Validation | None:
    """Mean nats per target over the batches, and bits per byte; None if `stop` became true meanwhile.

    bytes_per_target: bytes of validation text over targets of the whole split, so that a part of the split
    (eval.max_batches) is measured in the same unit.
    """
    begin = time.perf_counter()
    nats, targets = 0.0, 0
    for batch in batches:
        if stop():
            return None
        batch_nats, batch_targets = evaluator.evaluate(batch)
        nats += batch_nats
        targets += batch_targets
    loss = nats / targets if targets else math.nan
    bits = loss / LN2 / bytes_per_target if bytes_per_target else math.nan
    return Validation(step, loss, bits, targets, time.perf_counter() - begin)
