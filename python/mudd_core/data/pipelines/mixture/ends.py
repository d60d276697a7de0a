"""The end of a mixture: the number of samples before the first, or after the last, source was read to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.config.mix import SOURCES
from mudd_core.config.mix_sources import source_config, source_names

if TYPE_CHECKING:
    from mudd_core import _core

_MOST = 1 << 40  # samples; a source that is not read to its end before has none


class Sized(Protocol):
    """The number of sequences of a source: of `Rows`, or an estimate of it."""

    @property
    def rows(self) -> int:
        """The number of sequences in a training epoch; 0 if only reading to the end shows the number."""

    def batches(self, epochs: int) -> int | None:
        """Return the number of whole batches in `epochs` epochs; None if only reading to the end shows it."""


def sequences(rows: Sized, epochs: int, batch_size: int) -> int | None:
    """Return the sequences of a source in `epochs` passes; None for a stream, whose size is unknown."""
    whole = rows.batches(epochs)
    if whole is None:
        return None
    count = epochs * rows.rows
    # the last batches of packed documents may be filled up, or left out
    return count if whole == count // batch_size else whole * batch_size


def samples_before(schedule: _core.MixSchedule, source: int, count: int) -> int | None:
    """Return the fewest samples of the mixture among which the source has `count`; None if it never has."""
    high = 1
    while schedule.counts(high)[source] < count:
        high *= 2
        if high > _MOST:
            return None
    low = high // 2
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if schedule.counts(middle)[source] >= count else (middle + 1, high)
    return low


def end_of(config: Config, schedule: _core.MixSchedule, of: Sequence[Sized]) -> int:
    """Return the samples before the end of a mixture; 0 if only train.steps ends it.

    Raise UserError if a source ends before, or never.
    """
    names, until, size = source_names(config), config.data.mix_until, config.train.batch_size
    if until == "steps":
        _require_steps(config, schedule, of)
        return 0
    ends: list[int] = []
    for source, (name, rows) in enumerate(zip(names, of, strict=True)):
        epochs = source_config(config, name).data.epochs or max(1, config.train.epochs)
        count = sequences(rows, epochs, size)
        if count is None:
            raise UserError(
                f"[data.mix_until] {until} needs the sizes of the sources, and the source {name} is a stream; set "
                "data.cache=full or data.mix_until=steps"
            )
        found = samples_before(schedule, source, count + (until == "first"))
        if found is not None:
            ends.append(found - (until == "first"))
        elif until == "all":
            raise UserError(
                f"[data.mix_until] all: the source {name} is never read to its end with these weights; give it a "
                "weight above 0, or set data.mix_until=first or data.mix_until=steps"
            )
    return min(ends) if until == "first" else max(ends)


def _require_steps(config: Config, schedule: _core.MixSchedule, of: Sequence[Sized]) -> None:
    """Raise UserError if train.steps needs more passes over a source than its option `epochs` allows."""
    size, steps = config.train.batch_size, config.train.steps
    wanted = schedule.counts(steps * size)
    for source, (name, rows) in enumerate(zip(source_names(config), of, strict=True)):
        epochs = source_config(config, name).data.epochs
        count = sequences(rows, epochs, size) if epochs else None
        if count is not None and wanted[source] > count:
            found = samples_before(schedule, source, count + 1)
            most = (found - 1) // size if found else 0
            set_steps = f"train.steps={most}, " if most else ""
            raise UserError(
                f"[{SOURCES}.{name}.epochs] the source {name} ends: {epochs} passes have {count:,} sequences, and "
                f"train.steps={steps} reads {wanted[source]:,}; set {set_steps}{SOURCES}.{name}.epochs=0 or "
                "data.mix_until=first"
            )
