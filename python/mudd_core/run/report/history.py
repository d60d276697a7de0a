"""The updates and validations that this process has made, after the logged ones of a resumed run."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from mudd_core.run.ranks.load import LOAD
from mudd_core.run.records.events import StepRecord, Validation, numbers_of
from mudd_core.run.records.journal import Listener
from mudd_core.run.records.phases import HIDDEN, PHASES
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.run.store.metrics import Row

_OF_ENTRIES = (PHASES, HIDDEN, LOAD)
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
        found: dict[str, float] = {}
        for name, given in row.items():
            # None is a non-finite number in metrics.jsonl
            found |= [(name, np.nan)] if given is None else numbers_of(name, given)
        self._append(found)

    def prepend(self, rows: Iterable[Row]) -> None:
        """Put earlier entries in front, without steps that the columns already have."""
        own, self._columns = self._columns, {"step": array("d")}
        first = own["step"][0] if own["step"] else np.inf
        for row in rows:
            if row["step"] < first:
                self.add(row)
        for values in zip(*own.values(), strict=True):
            self._append(dict(zip(own, values, strict=True)))

    def _append(self, found: Mapping[str, float]) -> None:
        before = self.rows
        for name in found:
            if name not in self._columns:
                self._columns[name] = array("d", [np.nan]) * before
        for name, column in self._columns.items():
            column.append(found.get(name, np.nan))

    def metrics(self) -> Metrics:
        return Metrics.of_columns({name: column.tolist() for name, column in self._columns.items()})


class History(Listener):
    """A listener that keeps the updates and validations of a run, and adds its log entries from before a resume.

    It keeps every second update of a long run, then every fourth, and so on.
    """

    def __init__(self) -> None:
        self._updates, self._validations = _Columns(), _Columns()
        self._earlier: Callable[[], Iterable[Row]] | None = None

    def continues(self, earlier: Callable[[], Iterable[Row]]) -> None:
        """Start with the entries of a resumed run's metrics.jsonl. earlier: returns them, at the first use."""
        self._earlier = earlier

    def updated(self, record: StepRecord) -> None:
        self._updates.add(record.row())

    def validated(self, result: Validation) -> None:
        self._validations.add(result.row())

    @property
    def updates(self) -> Metrics:
        """The updates as columns, with the names of metrics.jsonl."""
        self._read_earlier()
        return self._updates.metrics()

    @property
    def validations(self) -> Metrics:
        """The validations as columns, with the names of metrics.jsonl."""
        self._read_earlier()
        return self._validations.metrics()

    def _read_earlier(self) -> None:
        if self._earlier is None:
            return
        earlier, self._earlier = self._earlier(), None
        # The updates of this process have no phases, because only log entries have them.
        rows = [{name: value for name, value in row.items() if name not in _OF_ENTRIES} for row in earlier]
        self._updates.prepend(row for row in rows if "val_loss" not in row)
        self._validations.prepend(row for row in rows if "val_loss" in row)
