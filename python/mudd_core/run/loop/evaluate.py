"""Validation: the loss on the held-out text, in which each token after the first is predicted once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from mudd_core.base.types import Array
from mudd_core.engine.evaluation_sums import EvaluationSums
from mudd_core.run.build.protocols import token_mean
from mudd_core.run.build.sourced_batches import SourcedBatches
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.by_source import SourceLoss
from mudd_core.run.records.engine import Evaluator
from mudd_core.run.records.events import BatchSums, Validation

LN2 = 0.6931471805599453
Mean = Callable[[Sequence[tuple[float, int]]], float]


def evaluate(
    evaluator: Evaluator,
    batches: Iterable[Mapping[str, Array]],
    *,
    step: int,
    bytes_per_target: float,
    stop: Callable[[], bool] = lambda: False,
    ranks: Ranks | None = None,
    together: bool = False,
    mean: Mean = token_mean,
    report: Callable[[BatchSums], None] = lambda sums: None,
) -> Validation | None:
    """Return the mean nats per target over the batches, and bits per byte; None if `stop` became true meanwhile.

    bytes_per_target: bytes of validation text over targets of the whole split, so that a part of the split
    (eval.max_batches) is measured in the same unit. ranks: they divide the batches. Sums are added in batch order, so
    the result has the same bits as with one process. together: the ranks need each other's weights, so all of them
    evaluate a batch at the same time, and the same batch if too few remain. mean: computes the loss from the sums of
    all batches. report: called on all ranks with the sums of each batch. For a mixture, loss, bits per byte and
    accuracy are means over its sources with the weights of data.mix.
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
    result = replace(_validation(step, found, mean, bytes_per_target), seconds=time.perf_counter() - begin)
    return _weighted(result, batches, found, mean) if isinstance(batches, SourcedBatches) else result


def _validation(
    step: int, found: Sequence[EvaluationSums], mean: Mean, bytes_per_target: float
) -> Validation:
    """Return the result over these batches, without its time."""
    loss, targets = mean([one[:2] for one in found]), sum(one[1] for one in found)
    bits = loss / LN2 / bytes_per_target if bytes_per_target else None
    counted = [one for one in found if one[1]]  # a batch without targets has no mean
    return Validation(
        step,
        loss,
        bits,
        targets,
        0.0,
        val_accuracy=sum(one[2] for one in found) / targets if targets else None,
        val_teacher_kl=_mean([one.divergence for one in found], targets),
        val_teacher_agreement=_mean([one.agreed for one in found], targets),
        val_margin=_mean([one.margins for one in found], targets),
        batch_loss=sum(one[0] / one[1] for one in counted) / max(1, len(counted)),
        batch_accuracy=sum(one[2] / one[1] for one in counted) / max(1, len(counted)),
    )


def _weighted(
    whole: Validation, batches: SourcedBatches, found: Sequence[EvaluationSums], mean: Mean
) -> Validation:
    """Return the result of a mixture. whole: over all batches, as if they were of one source."""
    rates = batches.bytes_per_target
    parts = [
        _validation(whole.step, sums, mean, rate)
        for sums, rate in zip(batches.divided(found), rates, strict=True)
    ]
    targets = [part.targets for part in parts]
    loss = batches.mean([part.val_loss for part in parts], targets)
    # all bits of the mixture divided by all of its bytes
    bits = loss / LN2 / batches.mean(rates, targets) if whole.targets and all(rates) else None
    accuracy = batches.mean([part.val_accuracy or 0.0 for part in parts], targets)
    losses = [SourceLoss(part.val_loss, part.val_bits_per_byte, part.targets) for part in parts]
    return replace(
        whole,
        val_loss=loss,
        val_bits_per_byte=bits,
        val_accuracy=accuracy if whole.targets else None,
        by_source=dict(zip(batches.names, losses, strict=True)),
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
