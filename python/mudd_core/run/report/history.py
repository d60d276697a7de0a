"""The updates and validations that a run has made in this process."""

from __future__ import annotations

from array import array

import numpy as np

from mudd_core.run.records.events import StepRecord, Validation, numbers_of
from mudd_core.run.records.journal import Listener
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.run.store.metrics import Row

MOST_NUMBERS = 1 << 20  # 8 MB; a longer history drops every second record


class _Columns:
    """Columns of metrics that grow record by record; NaN replaces a metric that a record lacks."""

    def __init__(self) -> None:
        self._columns: dict[str, array[float]] = {"step": array("d")}

    @property
    def rows(self) -> int:
        return len(self._columns["step"])

    def add(self, row: Row) -> None:
        """Add the metrics of a record, and drop its step and later ones: the run has gone back before them."""
        while self.rows and self._columns["step"][-1] >= row["step"]:
            for column in self._columns.values():
                column.pop()
        if (self.rows + 1) * len(self._columns) > MOST_NUMBERS:
            self._columns = {name: column[::2] for name, column in self._columns.items()}
        before = self.rows
        found = {label: value for name, given in row.items() for label, value in numbers_of(name, given)}
        for name in found:
            if name not in self._columns:
                self._columns[name] = array("d", [np.nan]) * before
        for name, column in self._columns.items():
            column.append(found.get(name, np.nan))

    def metrics(self) -> Metrics:
        return Metrics.of_columns({name: column.tolist() for name, column in self._columns.items()})


class History(Listener):
    """A listener that keeps the updates and validations of a run.

    It keeps every second update of a long run, then every fourth, and so on.
    """

    def __init__(self) -> None:
        self._updates, self._validations = _Columns(), _Columns()

    def updated(self, record: StepRecord) -> None:
        self._updates.add(record.row())

    def validated(self, result: Validation) -> None:
        self._validations.add(result.row())

    @property
    def updates(self) -> Metrics:
        """The updates as columns, with the names of metrics.jsonl."""
        return self._updates.metrics()

    @property
    def validations(self) -> Metrics:
        """The validations as columns, with the names of metrics.jsonl."""
        return self._validations.metrics()
