"""Metrics as columns: the arrays of a run's log, of its validations, and of a Trainer's history."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.packages import needed
from mudd_core.base.show.tables import html_table
from mudd_core.base.types import Float64, Int64
from mudd_core.run.records.events import numbers_of
from mudd_core.run.store.metrics import Row

if TYPE_CHECKING:
    import pandas


class Metrics(dict[str, "Int64 | Float64"]):
    """Mapping of names to arrays with one element per log entry: "step" and "tokens" are int64, others float64.

    Missing values are NaN. A list or dict of numbers becomes several columns, such as "expert_load/0".
    """

    @classmethod
    def of_rows(cls, rows: Iterable[Row]) -> Metrics:
        """Return the columns of entries of metrics.jsonl, in order."""
        columns: dict[str, array[float]] = {}
        count = 0
        for row in rows:
            for name, value in row.items():
                # null is a non-finite number, or means that the entry has no value
                for label, found in [(name, np.nan)] if value is None else numbers_of(name, value):
                    column = columns.setdefault(label, array("d"))
                    column.extend([np.nan] * (count - len(column)))
                    column.append(found)
            count += 1
        for column in columns.values():
            column.extend([np.nan] * (count - len(column)))
        return cls.of_columns(columns)

    @classmethod
    def of_columns(cls, columns: Mapping[str, Sequence[float]]) -> Metrics:
        """Return the metrics of columns of equal length."""
        return cls({name: _array(name, column) for name, column in columns.items()})

    @property
    def rows(self) -> int:
        """The number of entries."""
        return len(next(iter(self.values()), ()))

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas.DataFrame with index "step". Raise UserError with the install command if pandas is absent."""
        module = needed("pandas", "[metrics] to_pandas", "to create a DataFrame")
        frame: pandas.DataFrame = module.DataFrame(dict(self))
        return frame.set_index("step") if "step" in self else frame

    def _repr_html_(self) -> str:
        names = [name for name in self if "/" not in name][:_SHOWN_COLUMNS]
        half = _SHOWN_ROWS // 2
        few = self.rows <= _SHOWN_ROWS
        places = [*range(self.rows)] if few else [*range(half), *range(self.rows - half, self.rows)]
        rows = [[_cell(self[name][place]) for name in names] for place in places]
        if not few:
            rows.insert(half, ["..."] * len(names))
        more = len(self) - len(names)
        title = f"{self.rows:,} entries" + (f", {more} more columns" if more else "")
        return html_table(rows, title=title, head=names)

    def __repr__(self) -> str:
        steps = self.get("step")
        span = f", steps {steps[0]} to {steps[-1]}" if steps is not None and len(steps) else ""
        groups = Counter(name.partition("/")[0] for name in self)
        names = (name if name in self else f"{name}/... ({count})" for name, count in groups.items())
        return f"Metrics({self.rows} rows{span}: {', '.join(names)})"


_SHOWN_ROWS, _SHOWN_COLUMNS = 10, 9


def _cell(value: np.generic) -> str:
    return f"{value:,}" if isinstance(value, np.integer) else f"{value:.5g}"


def _array(name: str, column: Sequence[float]) -> Int64 | Float64:
    counts = name in ("step", "tokens") and not np.isnan(column).any()
    return np.array(column, np.int64) if counts else np.array(column, np.float64)
