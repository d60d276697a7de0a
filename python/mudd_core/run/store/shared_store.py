"""The store of a run of several ranks: rank 0 has the files; the other ranks get what they hold and write nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from mudd_core.base.errors import ReportedElsewhereError, SaveError
from mudd_core.base.members import build
from mudd_core.base.types import Json, JsonObject
from mudd_core.checkpoint import Checkpoint, StatePart
from mudd_core.config import Config, Difference, from_dict, to_dict
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.events import Sample, Summary, Validation
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.config_source import ConfigSource
from mudd_core.run.store.metrics import RecordedValidations, Row
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.run_store import RunStore
from mudd_core.run.store.store import Store


class SharedStore:
    """A RunStore that all ranks of a run have together. Its methods are collective, but for `log` and `event`."""

    def __init__(self, folder: RunFolder, ranks: Ranks) -> None:
        """Rank 0 locks the work directory; UserError if it is in use or foreign."""
        self._ranks = ranks
        self._store = ranks.together(lambda: RunStore(folder) if ranks.first else None)
        self.folder = RunFolder(Path(ranks.from_first(lambda: str(self.writer.folder))), folder.url)
        self._checkpoints = Checkpoints(self.folder)
        self.config: Config | None = None
        self.run_id = ""
        self.save_error: Exception | None = None
        self.ended = False

    @property
    def writer(self) -> RunStore:
        """The store itself, on rank 0."""
        assert self._store is not None
        return self._store

    @property
    def source(self) -> ConfigSource | None:
        """Of the config that is asked for, where it came from files; rank 0 knows it."""
        return self._store.source if self._store is not None else None

    @source.setter
    def source(self, source: ConfigSource | None) -> None:
        if self._store is not None:
            self._store.source = source

    def adopt(self, asked: Config) -> tuple[Config, list[Difference]]:
        """As RunStore.adopt; the changes are known to rank 0."""
        changed: list[Difference] = []

        def adopted() -> JsonObject:
            config, found = self.writer.adopt(asked)
            changed.extend(found)
            return to_dict(config)

        self.config = from_dict(self._ranks.from_first(adopted))
        return self.config, changed

    def resolve(self, config: Config) -> None:
        """As RunStore.resolve."""
        self.config = config
        if self._store is not None:
            self._store.resolve(config)

    def adopt_by(self, adopt: Callable[[RunStore], Config]) -> Config:
        """The config that `adopt` finds for the store on rank 0."""
        self.config = from_dict(self._ranks.from_first(lambda: to_dict(adopt(self.writer))))
        return self.config

    def summary(self) -> Summary | None:
        """The summary of a finished run; None while there is something left to do."""

        def found() -> JsonObject | None:
            summary = self.writer.summary()
            return None if summary is None else dataclasses.asdict(summary)

        raw = self._ranks.from_first(found)
        return None if raw is None else build(Summary, raw, self.folder.summary_file)

    def has_checkpoint(self) -> bool:
        """Return whether there is a step to go on from."""
        return bool(self._ranks.from_first(lambda: self.writer.has_checkpoint()))

    def saved_facts(self) -> JsonObject:
        """run.json of an earlier start; empty for a new run."""
        return dict(self._ranks.from_first(lambda: self.writer.saved_facts()))

    def begin(self, facts: Mapping[str, Json], into: Sequence[StatePart]) -> Checkpoint | None:
        """As RunStore.begin; every rank reads what it needs."""
        self.run_id = self._ranks.from_first(lambda: self.writer.identify(facts))
        comm = self._ranks.comm
        found = self._ranks.together(lambda: self._checkpoints.load_newest(self.run_id, into, comm=comm))
        self._same_step(found)
        self._by_first(lambda store: store.open_logs(found.step if found else 0))
        return found

    def record_bits(self, facts: Mapping[str, Json], step: int) -> str:
        """As RunStore.record_bits."""
        note: str = self._ranks.from_first(lambda: self.writer.record_bits(facts, step))
        return note

    def keep_files(self, files: Mapping[str, bytes]) -> None:
        """As RunStore.keep_files."""
        self._by_first(lambda store: store.keep_files(files))

    def rewind(self, step: int, into: Sequence[StatePart]) -> Checkpoint:
        """As RunStore.rewind."""
        comm = self._ranks.comm
        found = self._ranks.together(lambda: self._checkpoints.go_back(step, self.run_id, into, comm))
        self._same_step(found)
        self._by_first(lambda store: store.drop_after(found.step))
        return found

    def _same_step(self, found: Checkpoint | None) -> None:
        self._ranks.agree({"newest checkpoint that verifies": found.step if found else 0})

    def _by_first(self, action: Callable[[RunStore], None]) -> None:
        self._ranks.together(lambda: action(self._store) if self._store is not None else None)

    def validations(self, step: int) -> RecordedValidations:
        """As RunStore.validations."""

        def rows() -> JsonObject:
            found = self.writer.validations(step)
            last = None if found.last is None else dataclasses.asdict(found.last)
            return {
                "losses": [list(pair) for pair in found.losses],
                "updates": [list(pair) for pair in found.updates],
                "last": last,
            }

        found = self._ranks.from_first(rows)
        losses, updates = (
            [(int(step), float(loss)) for step, loss in found[name]] for name in ("losses", "updates")
        )
        last = found["last"]
        validation = None if last is None else build(Validation, last, self.folder.metrics_file)
        return RecordedValidations(losses, validation, updates)

    def log(self, row: Row, statistics: Mapping[str, float] | None = None) -> None:
        """One row of numbers."""
        if self._store is not None:
            self._store.log(row, statistics)

    def add_to_board(
        self, step: int, scalars: Mapping[str, float], texts: Mapping[str, str] | None = None
    ) -> None:
        """Further tags of TensorBoard."""
        if self._store is not None:
            self._store.add_to_board(step, scalars, texts)

    def log_object(self, values: Mapping[str, float | str]) -> None:
        """One object of another program."""
        if self._store is not None:
            self._store.log_object(values)

    def log_result(self, line: str) -> None:
        """One line of a validation for results.txt."""
        if self._store is not None:
            self._store.log_result(line)

    @property
    def last_sample(self) -> int:
        """The step of the last text in samples.jsonl; -1 where there is none, and on other ranks than rank 0."""
        return self._store.last_sample if self._store is not None else -1

    def log_sample(self, sample: Sample) -> None:
        """One text."""
        if self._store is not None:
            self._store.log_sample(sample)

    def event(self, name: str, **facts: Json) -> None:
        """Something that happened."""
        if self._store is not None:
            self._store.event(name, **facts)

    def beat(self) -> None:
        """UserError on all ranks if the work directory is not this run's any more."""
        if self._store is not None:
            self._store.beat()

    def take_stop_request(self) -> bool:
        """Whether the STOP file asks for a stop, on rank 0."""
        return self._store is not None and self._store.take_stop_request()

    def save(
        self,
        step: int,
        parts: Sequence[StatePart],
        state: Mapping[str, Json],
        spare: int | None = None,
        best_first: Sequence[int] = (),
    ) -> bool:
        """Commit a checkpoint; False on all ranks and `save_error` if it failed on one."""
        assert self.config is not None
        write = partial(
            self._checkpoints.save, step, parts, state, config=self.config, spare=spare, best_first=best_first
        )
        try:
            self._by_first(lambda store: store.sync_logs())
            self._ranks.together(lambda: write(run_id=self.run_id, comm=self._ranks.comm))
        except SaveError as error:  # on all ranks; rank 0 reports it
            self.save_error = error
            self.writer.save_failed(step, error)
            return False
        except ReportedElsewhereError as error:
            if error.exit_code != SaveError.exit_code:
                raise
            self.save_error = error
            return False
        self.save_error = None
        self._by_first(lambda store: store.mirror_step(step))
        return True

    def settle(self) -> None:
        """As RunStore.settle."""
        self._by_first(lambda store: store.settle())

    def finish(self, summary: Summary) -> None:
        """Write summary.json behind the last row."""
        self._by_first(lambda store: store.finish(summary))
        self.ended = True

    def close(self) -> None:
        """Close the logs and release the lock."""
        if self._store is not None:
            self._store.close()


def open_store(folder: RunFolder, ranks: Ranks) -> Store:
    """The store of a work directory."""
    return RunStore(folder) if ranks.world == 1 else SharedStore(folder, ranks)
