"""The store of a run as its loop sees it: one process with the files, or several ranks with one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from mudd_core.base.types import Json, JsonObject
from mudd_core.checkpoint import Checkpoint, StatePart
from mudd_core.config import Config, Difference
from mudd_core.run.records.events import Sample, Summary
from mudd_core.run.store.config_source import ConfigSource
from mudd_core.run.store.metrics import RecordedValidations, Row
from mudd_core.run.store.run_folder import RunFolder

if TYPE_CHECKING:
    from mudd_core.run.store.run_store import RunStore


class Store(Protocol):
    """The files of one run. Order of use: adopt a config, begin, then log and save, then finish or close.

    Of several ranks each one has a store; all methods are collective then, but for those that log, `event` and `beat`.
    ended: all that was done is saved, and a later store of this process may take over.
    """

    config: Config | None
    run_id: str
    ended: bool

    @property
    def folder(self) -> RunFolder:
        """The work directory."""

    @property
    def save_error(self) -> Exception | None:
        """Why the newest save failed; None if it worked."""

    @property
    def source(self) -> ConfigSource | None:
        """Of the config that is asked for, where it came from files."""

    @source.setter
    def source(self, source: ConfigSource | None) -> None: ...

    def take_stop_request(self) -> bool:
        """Whether the STOP file asks for a stop, once; False on ranks that do not look for it."""

    def adopt(self, asked: Config) -> tuple[Config, list[Difference]]:
        """The config to run: the asked one in a new folder, else the saved one with the asked free fields.

        Raises UserError with the list of fields that must not differ. The first rank alone knows the differences.
        """

    def adopt_by(self, adopt: Callable[[RunStore], Config]) -> Config:
        """The config that `adopt` finds for the store that has the files."""

    def resolve(self, config: Config) -> None:
        """Take what the first start of the run has found out for its config."""

    def summary(self) -> Summary | None:
        """The summary of a finished run; None while there is something left to do."""

    def has_checkpoint(self) -> bool:
        """Return whether there is a step to go on from."""

    def saved_facts(self) -> JsonObject:
        """run.json of an earlier start; empty for a new run."""

    def begin(self, facts: Mapping[str, Json], into: Sequence[StatePart]) -> Checkpoint | None:
        """Save config and identity of a new run, or load the newest checkpoint of an old one; open the logs.

        facts: what the weights depend on besides the config (data fingerprint, vocabulary), None where not known. A
        run whose saved facts differ is refused with UserError. into: the parts the checkpoint is read into, once it
        has verified.
        """

    def record_bits(self, facts: Mapping[str, Json], step: int) -> str:
        """Write what decides the bits from this step on to run.json; a note where that changes, else ''."""

    def keep_files(self, files: Mapping[str, bytes]) -> None:
        """Write files that commands on the run read, such as its tokenizer; SaveError where that fails."""

    def rewind(self, step: int, into: Sequence[StatePart]) -> Checkpoint:
        """Go back to the checkpoint of this step, or to the newest before it that verifies.

        Later checkpoints and the rows after it go: they are of a path that the run has left. into: as `begin`.
        """

    def validations(self, step: int) -> RecordedValidations:
        """The validations up to this step that the log has; FormatError if the row of the step itself is not one."""

    def log(self, row: Row, statistics: Mapping[str, float] | None = None) -> None:
        """One row of numbers, to metrics.jsonl and to TensorBoard. A disk that refuses it does not end the run."""

    def add_to_board(
        self, step: int, scalars: Mapping[str, float], texts: Mapping[str, str] | None = None
    ) -> None:
        """Further tags of TensorBoard."""

    def log_object(self, values: Mapping[str, float | str]) -> None:
        """One object of another program, to log.metrics_file where that has these."""

    def log_result(self, line: str) -> None:
        """One line of a validation, to the results.txt of log.metrics_file where there is one."""

    @property
    def last_sample(self) -> int:
        """The step of the last text in samples.jsonl; -1 where there is none, and on ranks without the files."""

    def log_sample(self, sample: Sample) -> None:
        """One text, to samples.jsonl and to TensorBoard."""

    def event(self, name: str, **facts: Json) -> None:
        """Something that happened, to events.jsonl."""

    def beat(self) -> None:
        """UserError if the work directory is not this run's any more; cheap, call it every step."""

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

    def settle(self) -> None:
        """Before the end: what could not be mirrored is tried once more; SaveError where that fails."""

    def finish(self, summary: Summary) -> None:
        """Write summary.json after the last row; SaveError if not every row is on disk."""

    def close(self) -> None:
        """Close the logs and release the lock; SaveError where a log cannot be written any more."""
