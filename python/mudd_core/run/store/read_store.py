"""The store of a run that is only read, at a step: no lock is taken, and nothing in the folder changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.types import Json
from mudd_core.checkpoint import Checkpoint, StatePart
from mudd_core.config import Config
from mudd_core.run.records.events import Summary
from mudd_core.run.records.facts import SINCE, change_of_bits
from mudd_core.run.records.journal import Listener
from mudd_core.run.store import own_code
from mudd_core.run.store.folder_lock import FolderLock
from mudd_core.run.store.identity import identity
from mudd_core.run.store.json_files import facts_of, run_id_of
from mudd_core.run.store.metrics import events_of
from mudd_core.run.store.mirror import Mirror
from mudd_core.run.store.rewinds import rewinds_of
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.run_store import RunStore
from mudd_core.run.store.step_saves import Outcome


class ReadStore(RunStore):
    """The files of a run for a Trainer in memory, which may be finished, or written by another process.

    at_step: the number of updates of the Trainer; later checkpoints are not used. bits_note: why its updates may have
    other bits than in the run; empty if they have the same bits.
    """

    def __init__(self, folder: RunFolder, at_step: int) -> None:
        self.at_step, self.bits_note = at_step, ""
        super().__init__(replace(folder.absolute(), read_only=True))
        self.rewinds = rewinds_of(self.folder)

    def _held(self, folder: RunFolder) -> tuple[FolderLock | None, Mirror | None]:
        return None, None

    def take_stop_request(self) -> bool:
        return False

    def _usable(self) -> list[int]:
        return [step for step in self._checkpoints.steps() if step <= self.at_step]

    def newest_step(self) -> int:
        """Return the step of the checkpoint from which the Trainer continues; 0 if there is none."""
        return max(self._usable(), default=0)

    def has_checkpoint(self) -> bool:
        return bool(self._usable())

    def listeners(self, config: Config) -> list[Listener]:
        return []

    def begin(self, facts: Mapping[str, Json], into: Sequence[StatePart]) -> Checkpoint | None:
        """Load the newest checkpoint up to the step; None if there is none. Raise UserError if the facts differ."""
        assert self.config is not None
        saved = facts_of(self.folder)
        identity(self.folder, saved, {**facts, **own_code.facts_of(self.config)}, None)
        self.run_id = run_id_of(self.folder, saved)
        return self._checkpoints.load_newest(self.run_id, into, self.at_step)

    def record_bits(self, facts: Mapping[str, Json], step: int) -> str:
        """Set bits_note; return an empty string."""
        saved = facts_of(self.folder)
        _, note = change_of_bits(saved, facts, max(1, step))
        since = saved.get(SINCE)
        if note:
            self.bits_note = note.partition(": ")[2]
        elif isinstance(since, int) and step < since:
            self.bits_note = f"the run had other bits up to step {since}"
        else:
            self.bits_note = self._uneven_ranks()
        return ""

    def _uneven_ranks(self) -> str:
        """Return a note if the run had a number of ranks on which its bits depend (mesh.any_world), else ''."""
        assert self.config is not None
        shards = self.config.train.shard_count()
        for event in events_of(self.folder) if self.config.mesh.any_world else ():
            ranks = event.get("ranks")
            if isinstance(ranks, int) and ranks > 0 and shards % ranks:
                return f"with mesh.any_world its bits depend on its {ranks} ranks"
        return ""

    def keep_files(self, files: Mapping[str, bytes]) -> None:
        """Write nothing."""

    def rewind(self, step: int, into: Sequence[StatePart]) -> Checkpoint:
        """Load the checkpoint of this step, or the newest earlier one that verifies."""
        return self._checkpoints.go_back(step, self.run_id, into)

    def save(
        self,
        step: int,
        parts: Sequence[StatePart],
        state: Mapping[str, Json],
        spare: int | None = None,
        best_first: Sequence[int] = (),
        live: _core.LiveBytes | None = None,
    ) -> Outcome:
        """Write nothing."""
        return Outcome.COMMITTED

    def finish(self, summary: Summary) -> None:
        """Write nothing."""
        self.ended = True

    def require_writable(self) -> None:
        raise UserError(
            f"[Trainer] save: expected a Trainer without at_step, got one that changes nothing in {self.folder}; type "
            "trainer.model.save(FOLDER) for the weights"
        )
