"""The response to updates with a non-finite value or a spike: skip them, go back to a checkpoint, or end the run."""

from __future__ import annotations

import socket
from collections.abc import Callable

from mudd_core.base.errors import DivergedError
from mudd_core.config import TrainConfig
from mudd_core.engine.batch_part import BATCH_SUM
from mudd_core.run.loop.finite_state import first_not_finite
from mudd_core.run.loop.state import RunState
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.engine import LoopEngine, StepReport
from mudd_core.run.records.journal import Journal
from mudd_core.run.store.run_store import RunStore
from mudd_core.run.store.saved_state import reading_state


class Recovery:
    """The response to bad updates: skip, rewind, or DivergedError."""

    def __init__(
        self,
        train: TrainConfig,
        engine: LoopEngine,
        store: RunStore | None,
        state: RunState,
        journal: Journal,
        ranks: Ranks,
        finish_save: Callable[[], None],
        *,
        clips: bool,
    ) -> None:
        self._clips = clips
        self._ranks, self._finish_save = ranks, finish_save
        self._train, self._engine, self._store = train, engine, store
        self._state, self._journal, self._guard = state, journal, state.guard

    def judge(self, step: int, report: StepReport, *, own_batch: bool) -> bool:
        """Count update `step` (from 0), and return whether the run must go back. Raise DivergedError if it cannot.

        own_batch: the batch is from the run's data, not passed by the caller.
        """
        reason = self._guard.judge(step, report)
        if not reason:
            return False
        train = self._train
        ends = report.spoilt or self._guard.skips_in_row >= train.max_skips
        if ends:
            self._finish_save()
        obstacle = self._obstacle(own_batch) if ends else ""
        where = ""
        if obstacle or train.debug_nonfinite:
            where = (
                self._spoilt_weight()
                if report.spoilt
                else ""
                if report.finite
                else self._first_nonfinite(step)
            )
        if report.spoilt:
            self._journal.said(f"step {step + 1}: {reason}{f': {where}' if train.debug_nonfinite else ''}")
        else:
            self._journal.skipped(step + 1, reason, where if train.debug_nonfinite else "")
        if obstacle:
            raise DivergedError(self._last_words(step, report, reason, where, obstacle))
        return ends

    def _first_nonfinite(self, step: int) -> str:
        """Return the place of the first value that is not finite, with several ranks also its rank and host."""
        own = self._engine.first_nonfinite(self._guard.batch_index(step))
        found = self._ranks.gathered([own, socket.gethostname()])
        bad = [
            f"{where} on rank {rank} ({host})"
            for rank, (where, host) in enumerate(found)
            if where != BATCH_SUM
        ]
        return bad[0] if bad and self._ranks.world > 1 else own

    def _spoilt_weight(self) -> str:
        """Return the first element of weights and moments that is not finite, with several ranks also its rank."""
        parts = self._engine.state_parts(writable=False)
        found = self._ranks.gathered(first_not_finite(parts))
        bad = [f"{where} on rank {rank}" for rank, where in enumerate(found) if where]
        return bad[0] if bad and self._ranks.world > 1 else found[0]

    def _obstacle(self, own_batch: bool) -> str:
        """Return the reason why the run cannot go back; empty if it can."""
        if self._store is None:
            return "without a work directory there is no checkpoint to return to"
        if not own_batch:
            return "the caller passed the batches, so none can be left out"
        if self._train.rewind == 0:
            return "train.rewind=0 allows no rewind"
        if len(self._guard.rewinds) >= self._train.rewind:
            return f"the run has already been rewound {len(self._guard.rewinds)} times (train.rewind)"
        if self._guard.anchor is None:
            return "train.save_every has not written a checkpoint yet"
        return ""

    def _last_words(self, step: int, report: StepReport, reason: str, where: str, obstacle: str) -> str:
        if report.spoilt:
            what = f"update {step + 1} wrote weights or moments that are not finite: {where}"
        elif report.spike:
            what = (
                f"{self._guard.skips_in_row} updates skipped in a row, the last at step {step + 1} ({reason})"
            )
        else:
            what = (
                f"{self._guard.skips_in_row} updates in a row with non-finite values, the last at "
                f"step {step + 1}; the first non-finite value is in {where}"
            )
        advice = "lower optim.lr or raise optim.warmup_steps"
        if self._clips:
            advice = "lower optim.lr, raise optim.warmup_steps, or lower optim.clip"
        return (
            f"[train] {what}. Nothing was saved since step {self._state.saved_step}, and {obstacle}; {advice}"
        )

    def go_back(self, step: int) -> None:
        """Load the anchor checkpoint, and leave out the batches from there to update `step`."""
        guard, store = self._guard, self._store
        assert store is not None and guard.anchor is not None
        guard.spoilt = True  # reset once all state is loaded: a failed read may leave a part of it
        parts = self._engine.state_parts(writable=True)
        found = store.rewind(guard.anchor, parts)
        self._journal.found(found)
        self._engine.load_state(parts)
        if self._engine.average is not None:
            self._engine.average.resume(found.stored, found.step)
        with reading_state(found):
            rewind = self._state.go_back(step, found.state)
        self._state.recall(store.validations(found.step))
        self._journal.rewound(rewind, len(guard.rewinds), self._train.rewind)
