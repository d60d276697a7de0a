"""Validation: the loss of the held-out text, every token after the first predicted once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from mudd_core.base.types import Array
from mudd_core.run.build.protocols import token_mean
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.engine import Evaluator
from mudd_core.run.records.events import BatchSums, Validation

LN2 = 0.6931471805599453


def evaluate(
    evaluator: Evaluator,
    batches: Iterable[Mapping[str, Array]],
    *,
    step: int,
    bytes_per_target: float,
    stop: Callable[[], bool] = lambda: False,
    ranks: Ranks | None = None,
    together: bool = False,
    mean: Callable[[Sequence[tuple[float, int]]], float] = token_mean,
    report: Callable[[BatchSums], None] = lambda sums: None,
) -> Validation | None:
    """Mean nats per target over the batches, and bits per byte; None if `stop` became true meanwhile.

    bytes_per_target: bytes of validation text over targets of the whole split, so that a part of the split
    (eval.max_batches) is measured in the same unit. ranks: the batches are dealt out to them, and the sums added in the
    order of batches, so that the result has the bits of one process. together: each rank evaluates as many batches as
    the others, since they gather weights for each other (mesh.zero=3). mean: the loss by the sums of all batches.
    report: called with the sums of each batch, on all ranks alike.
    """
    ranks = ranks or Ranks()
    begin = time.perf_counter()
    found: list[tuple[float, int, int]] = []
    for count, own, last in _dealt(batches, ranks):
        if stop():
            return None
        sums = (0.0, 0, 0)
        if own is not None:
            sums = evaluator.evaluate(own)
        elif last is not None and together:
            evaluator.evaluate(last)
        for one in ranks.gathered(sums)[:count]:
            found.append(tuple(one))
            report(BatchSums(len(found), *found[-1], time.perf_counter() - begin))
    loss, targets = mean([one[:2] for one in found]), sum(one[1] for one in found)
    bits = loss / LN2 / bytes_per_target if bytes_per_target else None
    counted = [one for one in found if one[1]]  # a batch of rows without targets has no mean
    return Validation(
        step,
        loss,
        bits,
        targets,
        time.perf_counter() - begin,
        val_accuracy=sum(one[2] for one in found) / targets if targets else None,
        batch_loss=sum(one[0] / one[1] for one in counted) / max(1, len(counted)),
        batch_accuracy=sum(one[2] / one[1] for one in counted) / max(1, len(counted)),
    )


def _dealt(
    batches: Iterable[Mapping[str, Array]], ranks: Ranks
) -> Iterator[tuple[int, Mapping[str, Array] | None, Mapping[str, Array] | None]]:
    """By rounds of a batch a rank: how many batches the round has, this rank's own (None: it has none), the last."""
    count = 0
    own: Mapping[str, Array] | None = None
    batch: Mapping[str, Array] | None = None
    for batch in batches:
        own = batch if count == ranks.rank else own
        count += 1
        if count == ranks.world:
            yield count, own, batch
            count, own = 0, None
    if count:
        yield count, own, batch
