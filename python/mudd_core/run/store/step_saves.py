"""The saves of a run: one step at a time, committed at once or written by threads while the run continues."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from mudd_core import _core
from mudd_core.base.errors import ReportedElsewhereError, SaveError
from mudd_core.base.types import Json
from mudd_core.checkpoint import StatePart
from mudd_core.checkpoint.async_save import AsyncSave
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.events import EventName
from mudd_core.run.store.checkpoints import Checkpoints, Retention
from mudd_core.run.store.logs import Logs
from mudd_core.run.store.mirror import Mirror


class Outcome(Enum):
    """The state of a save that threads write."""

    WRITES = "writes"
    COMMITTED = "committed"
    FAILED = "failed"


class StepSaves:
    """Commits steps. All ranks call all methods together, except `works` and `leave`.

    error: the error of the newest save; None if it succeeded.
    """

    def __init__(
        self,
        ranks: Ranks,
        checkpoints: Checkpoints,
        logs: Logs,
        mirror: Mirror | None,
        beat: Callable[[], None],
    ) -> None:
        """Create the saves of a run. beat: raises UserError if the folder no longer belongs to the run."""
        self._ranks, self._checkpoints, self._logs = ranks, checkpoints, logs
        self._comm = ranks.comm if ranks.world > 1 else None
        self._mirror, self._beat = mirror, beat
        self._upload_error: SaveError | None = None
        self.error: Exception | None = None
        self._current: tuple[int, AsyncSave] | None = None

    def save(
        self, step: int, parts: Sequence[StatePart], state: Mapping[str, Json], kept: Retention
    ) -> Outcome:
        """Commit a checkpoint and delete old ones. After a failure no old step is deleted."""

        def write() -> None:
            self._checkpoints.save(step, parts, state, kept, self._comm)

        return self._committed(step) if self._done(step, self._sync_logs, write) else Outcome.FAILED

    def start(
        self,
        step: int,
        parts: Sequence[StatePart],
        state: Mapping[str, Json],
        kept: Retention,
        live: _core.LiveBytes,
    ) -> Outcome:
        """Start the same in threads; `advance` ends it. No other save may be in progress. live: reads the parts."""
        started: list[AsyncSave | None] = []

        def start() -> None:
            started.append(self._checkpoints.start_save(step, parts, state, kept, self._comm, live))

        if not self._done(step, self._sync_logs, start):
            return Outcome.FAILED
        if started[0] is None:
            return self._committed(step)
        self._current = step, started[0]
        return Outcome.WRITES

    @property
    def works(self) -> bool:
        """True while this rank writes a save; if no rank does, `advance` does not wait."""
        return self._current is not None and self._current[1].works

    def advance(self) -> Outcome:
        """Wait for the threads of the started save, and continue or end it."""
        assert self._current is not None
        step, current = self._current
        ended: list[bool] = []
        if not self._done(step, lambda: ended.append(current.advance())):
            self._current = None
            return Outcome.FAILED
        if not ended[0]:
            return Outcome.WRITES
        self._current = None
        return self._committed(step)

    def leave(self) -> None:
        """Wait for this rank's thread without the other ranks; raise SaveError if the save failed.

        One process has then committed the step. With several ranks an uncommitted step is removed.
        """
        current, self._current = self._current, None
        if current is not None and (error := current[1].leave()) is not None:
            raise SaveError(f"[save] step {current[0]}: {error}") from error

    def settle(self) -> None:
        """Retry failed uploads once, before the end of the run; raise SaveError if that fails."""

        def push() -> None:
            if self._mirror is not None:
                self._mirror.push()
                if self.error is self._upload_error:
                    self.error = None

        self._on_first(push)

    def _on_first(self, action: Callable[[], None]) -> None:
        """Run an action on rank 0. An error ends all ranks."""
        self._ranks.together(lambda: action() if self._ranks.first else None)

    def _done(self, step: int, *works: Callable[[], None]) -> bool:
        """Return whether all work succeeds on all ranks; a SaveError sets `error` on all ranks."""
        try:
            for work in works:
                self._ranks.together(work)
        except SaveError as error:  # raised on the rank that reports the error
            self._failed(step, error)
            return False
        except ReportedElsewhereError as error:
            if error.exit_code != SaveError.exit_code:
                raise
            self.error = error
            return False
        return True

    def _committed(self, step: int) -> Outcome:
        self.error = None
        self._on_first(lambda: self._mirror_step(step))
        return Outcome.COMMITTED

    def _mirror_step(self, step: int) -> None:
        """Upload the committed step. A failure is treated as a failed save; no local step is lost."""
        if self._mirror is None:
            return
        try:
            self._mirror.push()
        except SaveError as error:
            print(f"warning: {error}; the next save tries again", file=sys.stderr)
            self._upload_error = error
            self._failed(step, error)

    def _sync_logs(self) -> None:
        """Sync the logs on rank 0 before a step is committed; raise SaveError if that fails."""
        if self._ranks.first:
            self._beat()
            self._logs.sync()

    def _failed(self, step: int, error: SaveError) -> None:
        """Store the reason, and write it to events.jsonl."""
        self.error = error
        self._logs.files.event(EventName.SAVE_FAILED, step=step, reason=str(error))
