"""The files of a run on disk, under one lock: config, identity, metrics, events, checkpoints, summary."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import write_error
from mudd_core.base.members import build
from mudd_core.base.surroundings import is_command_line
from mudd_core.base.types import Json, JsonObject
from mudd_core.checkpoint import Checkpoint, StatePart
from mudd_core.config import Config, Difference, OtherConfigError, from_dict, to_dict, with_bound_values
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.events import Summary
from mudd_core.run.records.journal import Listener
from mudd_core.run.store.checkpoints import Checkpoints, Retention
from mudd_core.run.store.config_source import ConfigSource
from mudd_core.run.store.folder_lock import FolderLock
from mudd_core.run.store.holders import opened
from mudd_core.run.store.identity import (
    config_to_run,
    require_weights,
    unchanged_summary,
    write_bits,
    write_bits_back_at,
    write_files,
    write_identity,
)
from mudd_core.run.store.json_files import (
    facts_of,
    write_summary,
)
from mudd_core.run.store.logs import Logs
from mudd_core.run.store.metrics import RecordedValidations, validations_of
from mudd_core.run.store.mirror import Mirror
from mudd_core.run.store.other_config import refused_call
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.step_saves import Outcome, StepSaves


class RunStore:
    """The files of one run. Order of use: adopt a config, begin, then log and save, then finish or close.

    Each rank of a run has a RunStore, and rank 0 writes. All methods are collective except `adopted`, `beat`,
    `take_stop_request` and `close`. ended: everything is saved, so a later store of this process may replace this one.
    """

    def __init__(self, folder: RunFolder, ranks: Ranks | None = None) -> None:
        """Lock the work directory and download missing files; raise UserError if it is in use or foreign."""
        self._ranks = ranks or Ranks()
        self._comm = self._ranks.comm if self._ranks.world > 1 else None
        self.ended = False
        held: tuple[FolderLock | None, Mirror | None] = self._ranks.together(
            lambda: self._held(folder) if self._ranks.first else (None, None)
        )
        self._lock, self._mirror = held
        own = folder if self._lock is None else self._lock.folder
        self.folder = self._ranks.shared(
            lambda: own, str, lambda path: dataclasses.replace(folder, path=Path(path))
        )
        self.config: Config | None = None
        self.source: ConfigSource | None = (
            None  # on rank 0: the source of the requested config, if it came from files
        )
        self.run_id = ""
        self._checkpoints = Checkpoints(self.folder)
        self.logs = Logs(self.folder)
        self.saves = StepSaves(self._ranks, self._checkpoints, self.logs, self._mirror, self.beat)

    def _held(self, folder: RunFolder) -> tuple[FolderLock | None, Mirror | None]:
        """Lock the work directory, and return the lock and the mirror of its URL."""
        return opened(folder, self)

    def _on_first(self, action: Callable[[], None]) -> None:
        """Run an action on rank 0. An error ends all ranks."""
        self._ranks.together(lambda: action() if self._ranks.first else None)

    def adopt(self, asked: Config) -> tuple[Config, list[Difference]]:
        """Return the config to run: the requested one in a new folder, else the saved one with requested free fields.

        Raise UserError with the fields that must not differ and, in Python, the calls that work instead; also for an
        interrupted import. Only rank 0 knows the differences.
        """
        changed: list[Difference] = []

        def adopted() -> Config:
            try:
                config, found = self.adopted(asked)
            except OtherConfigError as error:
                if is_command_line():
                    raise
                raise refused_call(error, self.folder, asked, self.newest_step()) from None
            changed.extend(found)
            return config

        return self.adopt_by(adopted), changed

    def adopt_by(self, adopt: Callable[[], Config]) -> Config:
        """Return on all ranks the config that `adopt` returns on rank 0."""
        self.config = self._ranks.shared(adopt, to_dict, from_dict)
        return self.config

    def adopted(self, asked: Config) -> tuple[Config, list[Difference]]:
        """Do the work of `adopt` on rank 0."""
        require_weights(self.folder)
        self.config = with_bound_values(asked)
        self.config, changed = config_to_run(self.folder, asked, self.newest_step)
        return self.config, changed

    def resolve(self, config: Config) -> None:
        """Set the config's values that are determined at the first start of the run."""
        self.config = config

    def beat(self) -> None:
        """Raise UserError on rank 0 if the folder no longer belongs to this run.

        This is cheap, so call it in every step.
        """
        if self._lock is not None:
            self._lock.beat()

    def take_stop_request(self) -> bool:
        """Return True on rank 0 if there is a STOP file, and remove it, so that the same command resumes the run."""
        return self._ranks.first and self.folder.take_stop_file()

    def newest_step(self) -> int:
        """Return the step of the newest checkpoint, without verification; 0 if there is none."""
        return self._checkpoints.newest()

    def summary(self) -> Summary | None:
        """Return the summary of a finished run; None if steps are left, or if the run's weights were removed."""
        config = self.config
        assert config is not None
        return self._ranks.shared(
            lambda: unchanged_summary(self.folder, config, self._checkpoints),
            lambda found: None if found is None else dataclasses.asdict(found),
            lambda raw: None if raw is None else build(Summary, raw, self.folder.summary_file),
        )

    def has_checkpoint(self) -> bool:
        """Return True if there is a step to resume from."""
        return bool(self._ranks.from_first(lambda: bool(self._checkpoints.steps())))

    def saved_facts(self) -> JsonObject:
        """Return run.json of an earlier start; empty for a new run."""
        return dict(self._ranks.from_first(lambda: facts_of(self.folder)))

    def listeners(self, config: Config) -> list[Listener]:
        """Return the logs of a run with this config, which write to the folder."""
        return self.logs.listeners(config)

    def begin(self, facts: Mapping[str, Json], into: Sequence[StatePart]) -> Checkpoint | None:
        """Save config and identity of a new run, or load the newest checkpoint of an old one; open the logs.

        facts: inputs of the weights in addition to the config (data fingerprint, vocabulary); unknown ones are None.
        Raise UserError if the saved facts differ. into: the parts into which a verified checkpoint is read; every rank
        reads its own.
        """
        assert self.config is not None
        write = partial(write_identity, self.folder, self.config, facts)
        self.run_id = self._ranks.from_first(lambda: write(self.source))
        found = self._ranks.together(
            lambda: self._checkpoints.load_newest(self.run_id, into, comm=self._comm)
        )
        step = found.step if found else 0
        self._ranks.agree({"newest checkpoint that verifies": step})
        self._on_first(lambda: self.open_logs(step))
        return found

    def record_bits(self, facts: Mapping[str, Json], step: int) -> str:
        """Write the facts about the bits from this step on to run.json; return a note if they change, else ''."""
        return str(self._ranks.from_first(lambda: write_bits(self.folder, facts, step)))

    def open_logs(self, step: int) -> None:
        """Open the logs on rank 0 and remove entries after the step."""
        self.logs.open(step, self.config or Config())

    def keep_files(self, files: Mapping[str, bytes]) -> None:
        """Write files for commands that read the run, such as its tokenizer; raise SaveError if that fails."""
        self._on_first(lambda: write_files(self.folder, files))

    def rewind(self, step: int, into: Sequence[StatePart]) -> Checkpoint:
        """Return to the checkpoint of this step, or to the newest earlier one that verifies.

        Later checkpoints and log entries are removed, because the run no longer leads to them. into: as in `begin`.
        """
        found = self._ranks.together(lambda: self._checkpoints.go_back(step, self.run_id, into, self._comm))
        self._ranks.agree({"newest checkpoint that verifies": found.step})
        self._on_first(lambda: self._drop_after(found.step))
        return found

    def _drop_after(self, step: int) -> None:
        """Do the second part of `rewind`: remove later checkpoints and log entries, and update run.json."""
        try:
            # Remove checkpoints before log entries, because a resume from a checkpoint needs its entries.
            self._checkpoints.drop_after(step, self.run_id)
            if self._mirror is not None:
                self._mirror.drop_missing()
            self.logs.close_rows()
        except OSError as error:
            raise write_error(self.folder, error) from error
        write_bits_back_at(self.folder, step)
        self.open_logs(step)

    def validations(self, step: int) -> RecordedValidations:
        """Return the logged validations up to this step; raise FormatError if the step's own entry is malformed."""
        return self._ranks.shared(
            lambda: validations_of(self.folder, step),
            dataclasses.asdict,
            lambda raw: RecordedValidations.of(raw, self.folder),
        )

    def save(
        self,
        step: int,
        parts: Sequence[StatePart],
        state: Mapping[str, Json],
        spare: int | None = None,
        best_first: Sequence[int] = (),
        live: _core.LiveBytes | None = None,
    ) -> Outcome:
        """Commit a checkpoint and delete old ones, or start that in threads.

        A failure sets `save_error` on all ranks, and no old step is deleted. spare, best_first: steps to retain, as in
        checkpoint.keep_last. live: reads the parts while the run continues; `saves.advance` then ends the save.
        """
        assert self.config is not None
        kept = Retention(self.config, self.run_id, spare, best_first)
        if live is None:
            return self.saves.save(step, parts, state, kept)
        return self.saves.start(step, parts, state, kept, live)

    @property
    def save_error(self) -> Exception | None:
        """The error of the newest save; None if it succeeded."""
        return self.saves.error

    def settle(self) -> None:
        """Retry failed uploads once, before the end of the run; raise SaveError if that fails."""
        self.saves.settle()

    def finish(self, summary: Summary) -> None:
        """Write summary.json after the last log entry; raise SaveError if an entry is not on disk."""

        def write() -> None:
            self.logs.sync()
            write_summary(self.folder, summary)
            if self._mirror is not None:
                self._mirror.push_logs()

        self._on_first(write)
        self.ended = True

    def close(self) -> None:
        """Wait for a save, close the logs and release the lock; raise SaveError if a write fails."""
        try:
            self.saves.leave()
        finally:
            self._close_logs()

    def _close_logs(self) -> None:
        if self._lock is None:
            return
        try:
            self.logs.close()
            mirror, self._mirror = self._mirror, None
            if mirror is not None and self.config is not None:
                mirror.push_last_logs()
        finally:
            self._lock.close()
