"""The section with the time of a run by phase, and the one thing that limits its speed."""

from __future__ import annotations

import numpy as np

from mudd_core.base.units import duration
from mudd_core.run.records.phases import PHASES, Phase
from mudd_core.run.report.limits import limit
from mudd_core.run.report.page.curves import series_of
from mudd_core.run.report.page.elements import Section, charts, table, text
from mudd_core.run.report.page.line_chart import line_chart
from mudd_core.run.report.page.records import Records
from mudd_core.run.report.page.time_line import breaks
from mudd_core.run.report.time_use import time_use

_SHOWN = 0.01  # fraction of the time of a phase in the chart


def time_by_phase(records: Records) -> Section | None:
    """Return the section; None for a run whose log has no phases, as in earlier versions."""
    use = time_use(records.folder)
    if not use.total:
        return None
    found = limit(use, records.config)
    rows = [
        (str(phase), duration(seconds), f"{use.fraction(phase):.1%}") for phase, seconds in use.phases.items()
    ]
    note = text(
        f"The sums of the last {use.entries:,} log entries. Each moment is in one phase."
        + (
            f" Messages were in transit for {duration(use.hidden)} more, hidden by computation."
            * (use.hidden > 0)
        ),
        "note",
    )
    sentence = "" if found is None else text(str(found))
    times = table(rows, ("phase", "time", "of all"), "numbers")
    return Section("Where the time goes", sentence + times + note + charts([_chart(records, [*use.phases])]))


def _chart(records: Records, phases: list[Phase]) -> str:
    """Return the chart of the percentages of the main phases in each log entry."""
    updates = records.updates
    columns = {phase: f"{PHASES}/{phase}" for phase in phases if f"{PHASES}/{phase}" in updates}
    if not columns or updates.rows < 2:
        return ""
    sums = np.sum([updates[column] for column in columns.values()], axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = {
            phase: 100 * np.asarray(updates[column], np.float64) / sums for phase, column in columns.items()
        }
    series = [
        series_of(
            records,
            updates.of_columns({"step": updates["step"].tolist(), "part": part.tolist()}),
            "part",
            phase,
        )
        for phase, part in parts.items()
        if np.nanmean(part) > 100 * _SHOWN
    ]
    return line_chart("Time by phase", series, unit="%", marks=breaks(records), wide=True)
