"""What a run writes to its work directory as it goes: rows, events, tags of TensorBoard, the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from mudd_core.base.types import JsonObject
from mudd_core.config import Difference
from mudd_core.engine.memory import peak_bytes
from mudd_core.run.records.event_names import EventName
from mudd_core.run.records.events import Rewind, Sample, StepRecord, Summary, Validation
from mudd_core.run.records.machine import MACHINE, PEAK_MEMORY, machine_facts
from mudd_core.run.store.run_store import RunStore


class FolderLog:
    """Writes what happens in a run to its store, in the order of the calls; nothing where the run has no store."""

    def __init__(self, store: RunStore | None, job: JsonObject) -> None:
        """job: what the events of a start say of several ranks."""
        self._store, self._job = store, job

    def started(self, warnings: Sequence[str], texts: Mapping[str, str]) -> None:
        """A new run. texts: of its style, for TensorBoard."""
        if self._store is not None:
            self._store.event(EventName.STARTED, **self._job, **{MACHINE: machine_facts()})
            self._warnings(self._store, warnings)
            self.tags(0, {}, texts)

    def resumed(self, step: int, changed: Sequence[Difference], warnings: Sequence[str]) -> None:
        """A run continues from a checkpoint, with changed fields of its config."""
        if self._store is not None:
            names: JsonObject = {"changed": [str(change) for change in changed]}
            machine = {MACHINE: machine_facts()}
            self._store.event(EventName.RESUMED, step=step, **names, **self._job, **machine)
            self._warnings(self._store, warnings)

    @staticmethod
    def _warnings(store: RunStore, texts: Sequence[str]) -> None:
        for text in texts:
            store.event(EventName.WARNING, text=text)

    def warned(self, step: int, text: str) -> None:
        """A warning after this step."""
        if self._store is not None:
            self._store.event(EventName.WARNING, step=step, text=text)

    def step(self, record: StepRecord) -> None:
        """The row of an update."""
        if self._store is not None:
            self._store.log(record.row(), record.statistics)

    def validated(self, result: Validation) -> None:
        """The row of a validation."""
        if self._store is not None:
            self._store.log(result.row())

    def tags(self, step: int, scalars: Mapping[str, float], texts: Mapping[str, str] | None = None) -> None:
        """Further tags of TensorBoard."""
        if self._store is not None and (scalars or texts):
            self._store.add_to_board(step, scalars, texts)

    def object(self, values: Mapping[str, float | str]) -> None:
        """One object of another program, for log.metrics_file."""
        if self._store is not None:
            self._store.log_object(values)

    def result(self, line: str) -> None:
        """One line of a validation for results.txt."""
        if self._store is not None:
            self._store.log_result(line)

    def source_lost(self, step: int, file: str, reason: str, retry: int, seconds: float) -> None:
        """The data of a step could not be read; the run waits so many seconds."""
        if self._store is not None:
            self._store.event(
                EventName.SOURCE_LOST, step=step, file=file, reason=reason, retry=retry, wait=seconds
            )

    def skipped(self, step: int, reason: str, where: str) -> None:
        """An update that does not count."""
        if self._store is not None:
            self._store.event(EventName.SKIPPED, step=step, reason=reason, where=where)

    def rewound(self, rewind: Rewind) -> None:
        """A run that went back to a checkpoint."""
        if self._store is not None:
            self._store.event(EventName.REWOUND, **asdict(rewind))

    def sampled(self, sample: Sample) -> None:
        """A text of sample.every."""
        if self._store is not None:
            self._store.log_sample(sample)

    def not_sampled(self, step: int, reason: str) -> None:
        """A text that was due and failed."""
        if self._store is not None:
            self._store.event(EventName.NO_SAMPLE, step=step, reason=reason)

    def saved(self, step: int, seconds: float) -> None:
        """A checkpoint was committed."""
        if self._store is not None:
            self._store.event(EventName.SAVED, step=step, seconds=seconds, **{PEAK_MEMORY: peak_bytes()})

    def ended(self, summary: Summary) -> None:
        """The end of a call of fit(), or a stop."""
        if self._store is not None:
            name = EventName.STOPPED if summary.stopped else EventName.FINISHED
            reason = "train.patience" if summary.out_of_patience else summary.stopped
            self._store.event(name, step=summary.step, reason=reason, **{PEAK_MEMORY: peak_bytes()})
            self._store.finish(summary)
