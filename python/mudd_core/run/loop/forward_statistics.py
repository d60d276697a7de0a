"""Statistics of the forward pass of an update, where the log of that update has them."""

from __future__ import annotations

from collections.abc import Mapping

from mudd_core.base.types import Array
from mudd_core.engine.batch_part import BatchPart
from mudd_core.run.loop.lost_source import LostSource
from mudd_core.run.loop.session import Session
from mudd_core.run.report.style import ForwardSums, forward_style


def read_forward_statistics(
    run: Session, source: LostSource, number: int, batch: Mapping[str, Array] | None
) -> bool:
    """Leave the statistics of the next update for the log, where it has them; False if a stop was asked for meanwhile.

    number: of the run's own batch. batch: taken instead. Each rank reads its sequences; all ranks call it together.
    """
    step = run.state.step_done + 1
    style = forward_style(run.config, step)
    if style is None:
        return True
    run.engine.settle()
    model, train, ranks = run.components.model, run.config.train, run.ranks
    part = BatchPart.of(train.batch_size, train.shard_count(), ranks.rank, ranks.world)

    def read() -> ForwardSums:
        if batch is None:
            rows = run.engine.batcher.arrays(number * train.batch_size + part.first, part.samples)
        else:
            arrays = model.checked(model.adapt(batch))[0]
            rows = {name: array[part.first : part.first + part.samples] for name, array in arrays.items()}
        return style.read_forward(model, train.seq_len, rows)

    found = source.reading(step, read)
    if found is None:
        return False
    run.forward_statistics = (step, style.forward_tags(ranks.gathered(found)))
    return True
