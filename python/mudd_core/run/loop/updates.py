"""One update of a run: batch, engine step, finite check with recovery, and record."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.types import Array, Int32
from mudd_core.config import Config
from mudd_core.engine.batch_part import BatchPart
from mudd_core.engine.mup_statistics import MupStatistics, has_statistics, statistics_of
from mudd_core.engine.optimizer_groups import learning_rate
from mudd_core.engine.weight_norms import norms_of
from mudd_core.run.loop.lost_source import LostSource
from mudd_core.run.loop.recovery import Recovery
from mudd_core.run.loop.requests import Requests
from mudd_core.run.loop.saves import Saves
from mudd_core.run.loop.session import Session
from mudd_core.run.ranks.rank_checks import compare_due, compare_weights
from mudd_core.run.records.engine import StepReport
from mudd_core.run.records.events import StepRecord
from mudd_core.run.records.phases import Phase
from mudd_core.run.report.style import ForwardSums, forward_style, logs_step, reads_norms

if TYPE_CHECKING:
    from mudd_core.run.loop.source_metrics import SourceMetrics


def batch_hash(arrays: Mapping[str, Array]) -> str:
    """Return the first 16 hex digits of the SHA-256 of all arrays of a batch."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


class Updates:
    """The updates of a run. Each one is complete, or changes nothing."""

    def __init__(self, run: Session, source: LostSource, requests: Requests, saves: Saves) -> None:
        self._run, self._source, self._requests = run, source, requests
        self._recovery = Recovery(
            run.config.train,
            run.engine,
            run.store,
            run.state,
            run.journal,
            run.ranks,
            saves.finish,
            clips=run.config.optim.clip > 0,
        )
        self._sources: SourceMetrics | None = None
        if run.config.data.mix:
            from mudd_core.run.loop.source_metrics import SourceMetrics

            self._sources = SourceMetrics(run.config, run.engine, run.ranks)
        self._number: int | None = None  # of the run's batch of the last update; None: a batch of the caller
        self._statistics: MupStatistics | None = None
        if run.ranks.first:
            self._statistics = statistics_of(run.config, run.components.model)

    def make_update(
        self, batch: Mapping[str, Array] | None = None, *, settle: bool = True
    ) -> StepRecord | None:
        """Make the next update on the run's next batch or on `batch`, and return its record; None if a stop dropped it.

        settle: as in Engine.train_step. If the record's step is above step_done, the run went back to a checkpoint.
        """
        run, state = self._run, self._run.state
        t = state.step_done
        state.guard.refuse_spoilt()
        state.guard.follow(t)
        if run.store is not None:
            run.store.ended = False
        run.watch.phase("forward", t + 1)
        lr, limits, flags = learning_rate(run.config, t), state.guard.limits(), self._requests.flags()
        number = state.guard.batch_index(t)
        forward = read_forward_statistics(run, self._source, number, batch)
        if forward is None:
            return None
        begin = time.perf_counter()

        statistics = self._statistics if logs_step(run.config, t + 1) else None

        def step() -> StepReport:
            if statistics is not None:
                statistics.before(self._inputs(number, batch))
            report = run.engine.train_step(number, lr, batch, limits, flags, settle, done=t)
            run.phases.step_took(run.engine.step_seconds)
            return report

        report = step() if batch is not None else self._source.reading(t + 1, step)
        if report is None:
            return None
        self._requests.take_flags(report)
        if report.stopped:
            return None
        found = {} if statistics is None else statistics.after(lr)
        goes_back = self._recovery.judge(t, report, own_batch=batch is None)
        seconds = time.perf_counter() - begin
        run.watch.phase("idle", t + 1)
        run.watch.took_step(seconds)
        metrics = run.engine.metrics()
        if run.config.log.batches:
            metrics = {**metrics, "batch_hash": batch_hash(run.engine.last_batch(number))}
        record = state.took_step(report, lr, seconds, metrics)
        record = replace(record, statistics=found, forward=forward, norms=read_weight_norms(run))
        self._number = number if batch is None else None
        if logs_step(run.config, t + 1):
            record = self.with_sources(record)
        run.journal.updated(record)
        if goes_back:
            self._recovery.go_back(t)
        # with slices, each weight has one owner and no copies
        copies = not run.cuts_weights or run.config.mesh.expert > 1
        if copies and compare_due(run.ranks, run.config.dist.compare_every, record.step):
            with run.phases.phase(Phase.MESSAGES):
                compare_weights(run.ranks, run.engine.state_parts(), record.step, cut=run.cuts_weights)
        return record

    def with_sources(self, record: StepRecord) -> StepRecord:
        """Return the record of the last update with the metrics of the sources of a mixture. All ranks call this."""
        if self._sources is None or self._number is None:
            return record
        return replace(record, metrics={**record.metrics, **self._sources.columns(self._number)})

    def _inputs(self, number: int, batch: Mapping[str, Array] | None) -> Int32:
        """Return the input ids of `batch`, or of the run's batch with this index."""
        size, run = self._run.config.train.batch_size, self._run
        if batch is None:
            inputs: Int32 = run.engine.batcher.arrays(number * size, size)["inputs"]
            return inputs
        return np.asarray(run.components.model.adapt(batch)["inputs"], np.int32)


def read_forward_statistics(
    run: Session, source: LostSource, number: int, batch: Mapping[str, Array] | None
) -> dict[str, float] | None:
    """Return the forward statistics of the next update; empty if its log has none, None if a stop was requested.

    number: index of the run's batch. batch: used instead. All ranks must call this; each evaluates its sequences.
    """
    step = run.state.step_done + 1
    style = forward_style(run.config, step)
    if style is None:
        return {}
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
        return None
    return style.forward_tags(ranks.gathered(found))


def read_weight_norms(run: Session) -> dict[str, float]:
    """Return the weight norms after the last update; empty if its log has none. All ranks must call this."""
    if not reads_norms(run.config, run.state.step_done):
        return {}
    if not run.together and not run.ranks.first:
        return {}
    own = run.engine.weight_squares()
    return norms_of(run.ranks.gathered(own) if run.together else [own])


def reads_weights(config: Config, step: int) -> bool:
    """Return whether the log reads weights after update `step`.

    All ranks must call this, because then all of them wait for the weights of other hosts.
    """
    statistics = has_statistics(config) and (logs_step(config, step) or logs_step(config, step + 1))
    return statistics or reads_norms(config, step)
