"""Validation: the loss on the held-out text, in which each token after the first is predicted once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from mudd_core.base.types import Array
from mudd_core.engine.evaluation_sums import EvaluationSums
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
    """Return the mean nats per target over the batches, and bits per byte; None if `stop` became true meanwhile.

    bytes_per_target: bytes of validation text over targets of the whole split, so that a part of the split
    (eval.max_batches) is measured in the same unit. ranks: they divide the batches. Sums are added in batch order, so
    the result has the same bits as with one process. together: the ranks need each other's weights, so all of them
    evaluate a batch at the same time, and the same batch if too few remain. mean: computes the loss from the sums of
    all batches. report: called on all ranks with the sums of each batch.
    """
    ranks = ranks or Ranks()
    begin = time.perf_counter()
    found: list[EvaluationSums] = []
    for count, own in _dealt_alike(batches, ranks) if together else _dealt(batches, ranks):
        if stop():
            return None
        sums = EvaluationSums(0.0, 0, 0) if own is None else evaluator.evaluate(own)
        for one in ranks.gathered(sums)[:count]:
            found.append(EvaluationSums(*one))
            report(BatchSums(len(found), *found[-1][:3], time.perf_counter() - begin))
    loss, targets = mean([one[:2] for one in found]), sum(one[1] for one in found)
    bits = loss / LN2 / bytes_per_target if bytes_per_target else None
    counted = [one for one in found if one[1]]  # a batch without targets has no mean
    return Validation(
        step,
        loss,
        bits,
        targets,
        time.perf_counter() - begin,
        val_accuracy=sum(one[2] for one in found) / targets if targets else None,
        val_teacher_kl=_mean([one.divergence for one in found], targets),
        val_teacher_agreement=_mean([one.agreed for one in found], targets),
        val_margin=_mean([one.margins for one in found], targets),
        batch_loss=sum(one[0] / one[1] for one in counted) / max(1, len(counted)),
        batch_accuracy=sum(one[2] / one[1] for one in counted) / max(1, len(counted)),
    )


def _mean(sums: Sequence[float | None], targets: int) -> float | None:
    """Return the mean over all targets; None without targets, or if no batch has this sum."""
    known = [one for one in sums if one is not None]
    return sum(known) / targets if known and targets else None


def _dealt(
    batches: Iterable[Mapping[str, Array]], ranks: Ranks
) -> Iterator[tuple[int, Mapping[str, Array] | None]]:
    """Yield for each round of one batch per rank: the count of batches, and this rank's batch or None."""
    count = 0
    own: Mapping[str, Array] | None = None
    for batch in batches:
        own = batch if count == ranks.rank else own
        count += 1
        if count == ranks.world:
            yield count, own
            count, own = 0, None
    if count:
        yield count, own


def _dealt_alike(
    batches: Iterable[Mapping[str, Array]], ranks: Ranks
) -> Iterator[tuple[int, Mapping[str, Array] | None]]:
    """Yield like `_dealt`, but for batches of the same shape. All ranks get each batch of an incomplete round."""
    waiting: list[Mapping[str, Array]] = []
    for batch in batches:
        if waiting and batch["inputs"].shape != waiting[0]["inputs"].shape:
            yield from ((1, one) for one in waiting)
            waiting.clear()
        waiting.append(batch)
        if len(waiting) == ranks.world:
            yield ranks.world, waiting[ranks.rank]
            waiting.clear()
    yield from ((1, one) for one in waiting)
