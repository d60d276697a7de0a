"""The Sources section of a page: the losses of each source of a mixture (data.mix), as curves and as a table."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mudd_core.run.records.by_source import sources_in
from mudd_core.run.report.page.elements import Section, charts, table, text
from mudd_core.run.report.page.line_chart import line_chart
from mudd_core.run.report.page.records import Records
from mudd_core.run.report.page.series import COLORS, Series
from mudd_core.run.report.sources import source_table
from mudd_core.run.store.metric_arrays import Metrics

_CHARTS = (("Training loss by source", "loss"), ("Validation loss by source", "val_loss"))


def sources(records: Records) -> Section | None:
    """Return the section with the last metrics of each source and the curves of its losses; None without a mixture."""
    logged = (records.updates, records.validations)
    values = {name: last for columns in logged for name, last in _last_finite(columns)}
    rows = source_table(values)
    if not rows:
        return None
    names = sources_in(values)
    figures = (
        _chart(records, columns, title, column, names[:COLORS])
        for (title, column), columns in zip(_CHARTS, logged, strict=True)
    )
    more = len(names) - COLORS
    note = text(f"The charts show the first {COLORS} sources of {len(names)}.", "note") if more > 0 else ""
    return Section("Sources", charts(filter(None, figures)) + note + table(rows[1:], rows[0], "numbers"))


def _last_finite(columns: Metrics) -> Iterator[tuple[str, float]]:
    """Yield name and last finite value of the columns that have one."""
    for name, values in columns.items():
        finite = values[np.isfinite(values)]
        if "/" in name and finite.size:
            yield name, float(finite[-1])


def _chart(records: Records, columns: Metrics, title: str, column: str, names: list[str]) -> str:
    """Return the chart of the sources that have a curve; '' if none has."""
    series = []
    for color, name in enumerate(names):
        values = columns.get(f"{column}/{name}")
        if values is None:
            continue
        known = np.isfinite(values)  # a batch without a sequence of the source has no loss of it
        places = records.places(columns["step"][known])
        series.append(Series(name, places, np.asarray(values[known], np.float64), color=color))
    return line_chart(title, series, unit="nats") if any(not one.lone for one in series) else ""
