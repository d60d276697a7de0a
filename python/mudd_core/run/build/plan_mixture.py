"""The part of a plan about a mixture (data.mix): the passes over each source, and the end of the run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from mudd_core import _core
from mudd_core.base.show.tables import text_table
from mudd_core.config import Config
from mudd_core.config.mix_sources import source_names, weights_by_sample
from mudd_core.data.pipelines import sizes_before_start
from mudd_core.data.pipelines.mixture.ends import end_of
from mudd_core.data.pipelines.mixture.rows import passes_of
from mudd_core.data.pipelines.mixture.sizes import Estimated
from mudd_core.run.build.rows import require_first_batch, row_shape
from mudd_core.run.build.start_warnings import many_passes, of_mixture

_MOST = 12  # sources in a plan, those with the most passes
_UNKNOWN = "only the start of the run knows its tokens"


@dataclass(frozen=True)
class _Reading:
    """A source in a planned run.

    count: its sequences in the run. rows: the sequences of one pass, 0 if unknown. about: "about " if they are
    estimated.
    """

    name: str
    count: int
    rows: float
    about: str

    @property
    def passes(self) -> float:
        """The passes over the source; 0 if unknown."""
        return self.count / self.rows if self.rows else 0.0


class PlannedMixture:
    """The sources of a planned run.

    steps: its updates; None if the sources decide and the size of one is unknown.
    """

    def __init__(self, config: Config, asked: int | None) -> None:
        """Count the sources. asked: the updates without an end of the mixture, None if unknown.

        Raise UserError if a start would refuse the sources.
        """
        self._config, self._names = config, source_names(config)
        self._sizes = sizes_before_start(config, row_shape(config))
        self._schedule = _core.MixSchedule(weights_by_sample(config))
        self._exact = not any(size is None or isinstance(size, Estimated) for size in self._sizes)
        self.steps = self._end(asked)

    def _end(self, asked: int | None) -> int | None:
        config, known = self._config, [size for size in self._sizes if size is not None]
        if config.data.mix_until == "steps":
            if self._exact:
                end_of(config, self._schedule, known)
            return asked
        if len(known) < len(self._sizes):
            return None
        whole = end_of(config, self._schedule, known) // config.train.batch_size
        if self._exact:
            require_first_batch(config, whole)
        return whole if config.train.epochs else min(whole, config.train.steps)

    def lines(self) -> list[str]:
        """Return the lines of the plan about the sources, the end of the run, and sources that are read often."""
        found = self._readings()
        # the sources with the most passes, in the order of data.mix
        most = sorted(found, key=lambda one: -one.passes)[:_MOST]
        table = text_table([self._row(one) for one in found if one in most], left=(0, 2))
        lines = [f"{'  sources' if not at else '':<16}{line}" for at, line in enumerate(table)]
        if len(found) > _MOST:
            lines.append(f"{'':<16}and {len(found) - _MOST} more with fewer passes")
        return lines + list(self._ending())

    def warnings(self) -> list[str]:
        """Return the warnings about the sources: the ones of a start, and sources that are read many times."""
        found, length = of_mixture(self._config), self._config.train.seq_len
        for one in self._readings() if self.steps is not None else ():
            there = math.ceil(one.rows * length)
            found += many_passes(self._config, one.name, one.count * length, there, one.about)
        return found

    def _readings(self) -> list[_Reading]:
        """Return the sources of the run, or of its first 1,000 updates if its length is unknown."""
        steps = 1000 if self.steps is None else self.steps
        counts = self._schedule.counts(steps * self._config.train.batch_size)
        return [
            _Reading(
                name,
                count,
                size.rows / passes_of(size) if size is not None else 0.0,
                "about " if isinstance(size, Estimated) else "",
            )
            for name, count, size in zip(self._names, counts, self._sizes, strict=True)
        ]

    def _row(self, one: _Reading) -> list[str]:
        """Return the cells of the line about a source: name, share and passes."""
        config, text = self._config, _UNKNOWN
        if one.rows:
            text = f"{one.about}{int(one.rows * config.train.seq_len):,} tokens"
            if self.steps is not None:
                text = f"{one.about}{one.passes:,.2f} passes over {text}"
        total = (1000 if self.steps is None else self.steps) * config.train.batch_size
        return [one.name, f"{one.count / max(1, total):.2%}", text]

    def _ending(self) -> Iterator[str]:
        """Yield the line about a run that its sources end early."""
        data, train = self._config.data, self._config.train
        if data.mix_until == "steps":
            return
        if self.steps is None:
            most = "" if train.epochs else f", at most {train.steps:,}"
            yield (
                f"  steps         as many as the mixture has (data.mix_until={data.mix_until}){most}; the start of the "
                "run counts them"
            )
        elif train.epochs or self.steps < train.steps:
            about = "" if self._exact else "about "
            before = "" if train.epochs else f", before train.steps={train.steps:,}"
            yield f"  steps         {about}{self.steps:,}: data.mix_until={data.mix_until} ends the run there{before}"
