"""Requests to stop or save, which reach one rank and become decisions of all ranks."""

from __future__ import annotations

from mudd_core.config import TrainConfig
from mudd_core.run.loop import signals
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.engine import StepReport
from mudd_core.run.store.run_store import RunStore

STOP, SAVE, WRITES = 1, 2, 4  # flags that a rank sends with a step; WRITES: its thread writes a checkpoint


class Requests:
    """The requests from signals, the STOP file and other ranks.

    A single process checks them when the loop calls. Several ranks exchange them with the totals of a step, without an
    extra message, or by `agree`. All ranks therefore stop at the same step.
    """

    def __init__(self, ranks: Ranks, store: RunStore | None, train: TrainConfig) -> None:
        self._ranks, self._store, self._train = ranks, store, train
        self.begin()

    def begin(self) -> None:
        """Drop earlier requests, at the start of a loop."""
        self._own: str | None = None  # the reason why this rank requests a stop
        self._agreed: str | None = None
        self.decided: str | None = None  # the reason why all ranks stop, once it is decided
        self._save = self._writes = False

    def flags(self) -> int:
        """Return the flags that this rank sends to the other ranks with its next step."""
        if self._ranks.world == 1:
            return 0
        stop, save = self._look() is not None, signals.take_save_request()
        return STOP * stop | SAVE * save | WRITES * self._writes_here

    def take_flags(self, report: StepReport) -> None:
        """Store the flags that the step gathered from all ranks."""
        if self._ranks.world == 1:
            return
        self._save |= bool(report.flags & SAVE)
        self._writes = bool(report.flags & WRITES)
        if report.stopped or report.flags & STOP:
            self.agree()

    def agree(self) -> None:
        """Exchange stop requests now; all ranks must call this."""
        if self._ranks.world > 1:
            self._agreed = self._ranks.first_given(self._look())

    def stop(self, step_done: int) -> str | None:
        """Return the reason why all ranks stop after this step; None if they continue.

        Raise UserError if another process has taken over the work directory.
        """
        if self._store is not None:
            self._store.beat()
        if self.decided is None:
            self.decided = self._look() if self._ranks.world == 1 else self._agreed
        if self.decided is None and 0 < self._train.stop_at <= step_done < self._train.steps:
            self.decided = "train.stop_at"
        return self.decided

    def take_save(self) -> bool:
        """Return True once after a request to save."""
        if self._ranks.world == 1:
            return signals.take_save_request()
        asked, self._save = self._save, False
        return asked

    def writes(self) -> bool:
        """Return whether a rank was writing a checkpoint before the last step, or still is in a single process."""
        return self._writes_here if self._ranks.world == 1 else self._writes

    @property
    def _writes_here(self) -> bool:
        return self._store is not None and self._store.saves.works

    def _look(self) -> str | None:
        if self._own is None or self._ranks.world == 1:
            self._own = signals.stop_reason(self._store.take_stop_request if self._store else None)
        return self._own
