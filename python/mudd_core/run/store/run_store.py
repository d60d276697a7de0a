"""What a run keeps on disk: config, identity, metrics, events, checkpoints, summary, under one lock."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from mudd_core import _core
from mudd_core.base.errors import SaveError, write_error
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import Json, JsonObject
from mudd_core.checkpoint import Checkpoint, StatePart
from mudd_core.config import Config, Difference, with_bound_values
from mudd_core.run.records.bits import bits_back_at, change_of_bits
from mudd_core.run.records.event_names import EventName
from mudd_core.run.records.events import Sample, Summary
from mudd_core.run.store import own_code
from mudd_core.run.store.bound_values import bound_facts, with_earlier_values
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.config_source import ConfigSource
from mudd_core.run.store.fetch import finish_fetch
from mudd_core.run.store.holders import locked
from mudd_core.run.store.identity import identity
from mudd_core.run.store.json_files import (
    facts_of,
    finished_summary,
    keep_epochs,
    read_config_file,
    read_saved_config,
    run_id_of,
    write_config,
    write_facts,
    write_summary,
)
from mudd_core.run.store.logs import Logs
from mudd_core.run.store.metrics import RecordedValidations, Row, validations_of
from mudd_core.run.store.mirror import Mirror
from mudd_core.run.store.moved_places import moved_along
from mudd_core.run.store.resumed_config import resumed_config
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.unfinished_import import require_weights


class RunStore:
    """The files of one run. Order of use: adopt a config, begin, then log and save, then finish or close."""

    def __init__(self, folder: RunFolder) -> None:
        """Lock the work directory; UserError if it is in use or foreign.

        What the storage has that the folder is a copy of, and this machine lacks, is fetched.
        """
        self.ended = False  # all that was done is saved: a later store of this process may take over
        self._mirror = Mirror(folder) if folder.url else None
        self._lock = locked(folder, self)
        try:
            finish_fetch(self.folder)
            if self._mirror is not None:
                self._mirror.fetch(print)
        except BaseException:
            self._lock.close()
            raise
        self.config: Config | None = None
        self.source: ConfigSource | None = None  # of the config that is asked for, where it came from files
        self.run_id = ""
        self._upload_error: SaveError | None = None
        self.save_error: SaveError | None = None  # of the newest save, None if that worked
        self._checkpoints = Checkpoints(self.folder)
        self._logs = Logs(self.folder)

    @property
    def folder(self) -> RunFolder:
        """The work directory."""
        return self._lock.folder

    def adopt(self, asked: Config) -> tuple[Config, list[Difference]]:
        """The config to run: the asked one in a new folder, else the saved one with the asked free fields.

        Raises UserError with the list of fields that must not differ.
        """
        changed: list[Difference] = []
        self.config = with_bound_values(asked)
        if self.folder.holds_run:
            facts = self.saved_facts()
            asked = own_code.as_saved(asked, self.folder, facts)
            asked = moved_along(asked, read_config_file(self.folder), self.folder)
            saved = read_saved_config(self.folder)
            asked = with_earlier_values(asked, saved, facts)
            self.config, changed = resumed_config(saved, asked, self.newest_step())
        return self.config, changed

    def resolve(self, config: Config) -> None:
        """Take what the first start of the run has found out for its config."""
        self.config = config

    def adopt_by(self, adopt: Callable[[RunStore], Config]) -> Config:
        """The config that `adopt` finds for this store."""
        return adopt(self)

    def beat(self) -> None:
        """UserError if the work directory is not this run's any more; cheap, call it every step."""
        self._lock.beat()

    def take_stop_request(self) -> bool:
        """Whether the STOP file asks for a stop. It is taken away: the same command shall run on."""
        return self.folder.take_stop_file()

    def newest_step(self) -> int:
        """The newest checkpoint's step, whether it verifies or not; 0 where there is none."""
        return self._checkpoints.newest()

    def summary(self) -> Summary | None:
        """The summary of a finished run; None while there is something left to do."""
        assert self.config is not None
        return finished_summary(self.folder, self.config)

    def has_checkpoint(self) -> bool:
        """Return whether there is a step to go on from."""
        return bool(self._checkpoints.steps())

    def saved_facts(self) -> JsonObject:
        """run.json of an earlier start; empty for a new run."""
        return facts_of(self.folder)

    def begin(self, facts: Mapping[str, Json], into: Sequence[StatePart]) -> Checkpoint | None:
        """Save config and identity of a new run, or load the newest checkpoint of an old one; open the logs.

        facts: what the weights depend on besides the config (data fingerprint, vocabulary), None where not known. A
        run whose saved facts differ is refused with UserError. into: the parts the checkpoint is read into, once it
        has verified.
        """
        self.identify(facts)
        found = self._checkpoints.load_newest(self.run_id, into)
        self.open_logs(found.step if found else 0)
        return found

    def identify(self, facts: Mapping[str, Json]) -> str:
        """The first part of `begin`, up to the checkpoint: config and identity are on disk; the run's id."""
        assert self.config is not None
        require_weights(self.folder)
        saved, facts = self.saved_facts(), {**facts, **own_code.facts_of(self.config)}
        if not saved:
            facts |= bound_facts(self.config)
        run = identity(self.folder, saved, facts, self.source)
        self.run_id = run_id_of(self.folder, run)
        keep_epochs(self.folder)  # before config.json may have more
        # The config first: it is what makes the folder ours, should the run be killed before the next line.
        write_config(self.folder, self.config)
        self.keep_files(own_code.copies_of(self.config))
        if run != saved:
            write_facts(self.folder, run)
        if obstacle := own_code.remember_code(self.run_id, self.config):
            print(f"note: other commands on this run need --trust-code: {obstacle}", file=sys.stderr)
        self._checkpoints.recover()
        return self.run_id

    def record_bits(self, facts: Mapping[str, Json], step: int) -> str:
        """Write what decides the bits from this step on to run.json; a note where that changes, else ''."""
        saved = self.saved_facts()
        now, note = change_of_bits(saved, facts, step)
        self._replace_facts(saved, now)
        return note

    def _replace_facts(self, saved: JsonObject, now: JsonObject) -> None:
        if now != saved:
            write_facts(self.folder, now)

    def open_logs(self, step: int) -> None:
        """The last part of `begin`: rows behind the step are cut off."""
        self._logs.open(step, self.config or Config())

    def keep_files(self, files: Mapping[str, bytes]) -> None:
        """Write files that commands on the run read, such as its tokenizer; SaveError where that fails."""
        for name, data in files.items():
            file = self.folder.path / name
            try:
                if not file.is_file() or read_bytes(file) != data:
                    _core.replace_file(str(file), data)
            except OSError as error:
                raise write_error(file, error) from error

    def rewind(self, step: int, into: Sequence[StatePart]) -> Checkpoint:
        """Go back to the checkpoint of this step, or to the newest before it that verifies.

        Later checkpoints and the rows behind it go: they are of a path that the run has left. into: as `begin`.
        """
        found = self._checkpoints.go_back(step, self.run_id, into)
        self.drop_after(found.step)
        return found

    def drop_after(self, step: int) -> None:
        """The second part of `rewind`: later checkpoints go, and rows; run.json follows."""
        try:
            # Checkpoints before rows: a resume from one of these needs its rows.
            self._checkpoints.drop_after(step, self.run_id)
            if self._mirror is not None and (obstacle := self._mirror.drop_missing()):
                print(f"warning: {obstacle}", file=sys.stderr)
            self._logs.close_rows()
        except OSError as error:
            raise write_error(self.folder, error) from error
        saved = self.saved_facts()
        self._replace_facts(saved, bits_back_at(saved, step))
        self.open_logs(step)

    def validations(self, step: int) -> RecordedValidations:
        """The validations up to this step that the log has; FormatError if the row of the step itself is not one."""
        return validations_of(self.folder, step)

    def log(self, row: Row, statistics: Mapping[str, float] | None = None) -> None:
        """One row of numbers, to metrics.jsonl and to TensorBoard. A disk that refuses it does not end the run."""
        self._logs.row(row, statistics or {})

    def add_to_board(
        self, step: int, scalars: Mapping[str, float], texts: Mapping[str, str] | None = None
    ) -> None:
        """Further tags of TensorBoard."""
        self._logs.add_to_board(step, scalars, texts or {})

    def log_object(self, values: Mapping[str, float | str]) -> None:
        """One object of another program, to log.metrics_file where that has these."""
        self._logs.object(values)

    def log_result(self, line: str) -> None:
        """One line of a validation, to the results.txt of log.metrics_file where there is one."""
        self._logs.result(line)

    @property
    def last_sample(self) -> int:
        """The step of the last text in samples.jsonl; -1 where there is none."""
        return self._logs.last_sample

    def log_sample(self, sample: Sample) -> None:
        """One text, to samples.jsonl and to TensorBoard."""
        self._logs.sample(sample)

    def event(self, name: str, **facts: Json) -> None:
        """Something that happened, to events.jsonl."""
        self._logs.event(name, facts)

    def save(
        self,
        step: int,
        parts: Sequence[StatePart],
        state: Mapping[str, Json],
        spare: int | None = None,
        best_first: Sequence[int] = (),
    ) -> bool:
        """Commit a checkpoint and drop old ones. False and `save_error` if it failed; older steps stay.

        spare, best_first: steps that are not dropped, as checkpoint.keep_last.
        """
        assert self.config is not None
        try:
            self.sync_logs()
            self._checkpoints.save(
                step,
                parts,
                state,
                config=self.config,
                run_id=self.run_id,
                spare=spare,
                best_first=best_first,
            )
        except SaveError as error:
            self.save_failed(step, error)
            return False
        self.save_error = None
        self.mirror_step(step)
        return True

    def mirror_step(self, step: int) -> None:
        """Mirror what is committed. A failure counts as one of a save; no local step is lost."""
        if self._mirror is None:
            return
        try:
            self._mirror.push()
        except SaveError as error:
            print(f"warning: {error}; the next save tries again", file=sys.stderr)
            self._upload_error = error
            self.save_failed(step, error)

    def settle(self) -> None:
        """Before the end: what could not be mirrored is tried once more; SaveError where that fails."""
        if self._mirror is not None:
            self._mirror.push()
            if self.save_error is self._upload_error:
                self.save_error = None

    def sync_logs(self) -> None:
        """Before a step is committed, its rows are on disk; SaveError where that fails."""
        self._lock.beat()
        self._logs.sync()

    def save_failed(self, step: int, error: SaveError) -> None:
        """Keep the reason, and write it to events.jsonl."""
        self.save_error = error
        self.event(EventName.SAVE_FAILED, step=step, reason=str(error))

    def finish(self, summary: Summary) -> None:
        """Write summary.json behind the last row; SaveError if not every row is on disk."""
        self._logs.sync()
        write_summary(self.folder, summary)
        if self._mirror is not None:
            self._mirror.push_logs()
        self.ended = True

    def close(self) -> None:
        """Close the logs and release the lock; SaveError where a log cannot be written any more."""
        try:
            self._logs.close()
            self._mirror_last_lines()
        finally:
            self._lock.close()

    def _mirror_last_lines(self) -> None:
        mirror, self._mirror = self._mirror, None
        if mirror is not None and self.config is not None:
            try:
                mirror.push_logs()
            except SaveError as error:
                print(f"warning: {error}", file=sys.stderr)
