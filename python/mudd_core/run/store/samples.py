"""samples.jsonl: the texts that a run writes at validations, one JSON object a line: step, prompt, text."""

from __future__ import annotations

import dataclasses
import os

from mudd_core.base.members import build
from mudd_core.run.records.events import Sample
from mudd_core.run.store.metrics import MetricsLog, read_rows
from mudd_core.run.store.run_folder import RunFolder


def samples_of(folder: RunFolder) -> list[Sample]:
    """The texts of a run in the order of their steps; none without sample.every. FormatError for a damaged file."""
    file = folder.samples_file
    return [build(Sample, row, file, f"text of step {row['step']}: ") for row in read_rows(file)]


class SampleLog:
    """samples.jsonl, cut back to the resumed step; the file is made with the first text. last: its last step, or -1."""

    def __init__(self, folder: RunFolder, *, resumed_step: int) -> None:
        self._path, self._step = folder.samples_file, resumed_step
        self._lines: MetricsLog | None = None
        self.last = -1
        if os.path.lexists(self._path):
            self._lines = self._opened()
            self.last = max((row["step"] for row in read_rows(self._path)), default=-1)

    def _opened(self) -> MetricsLog:
        return self._lines or MetricsLog(self._path, resumed_step=self._step)

    def append(self, sample: Sample) -> None:
        """Append one text; OSError where the disk refuses it, which is tried again with the next one."""
        self.last = sample.step
        self._lines = self._opened()
        self._lines.append(dataclasses.asdict(sample))

    def sync(self) -> None:
        """Make the texts survive a power cut."""
        if self._lines is not None:
            self._lines.sync()

    def close(self) -> None:
        """Write the rest and close."""
        if self._lines is not None:
            self._lines.close()
