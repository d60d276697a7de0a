"""The curve of a run in characters and the last rows of its metrics as a small table, for a terminal or a pipe."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mudd_core.base.show.tables import text_table
from mudd_core.base.show.terminal import Screen
from mudd_core.base.units import duration
from mudd_core.run.report.curve import curve
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.run.store.metrics import Row

ROWS = 5
NOT_FINITE = "not finite"
_COLUMNS = (
    ("loss", "loss", ".4f"),
    ("grad norm", "grad_norm", ".4g"),
    ("lr", "lr", ".3e"),
    ("tokens/s", "tokens_per_second", ",.0f"),
    ("of peak", "peak_share", ".0%"),
)


def curve_and_last_rows(title: str, rows: Sequence[Row], shown: Screen) -> list[str]:
    """Return the lines of both, with an empty line before each; no curve where there are not two losses to connect."""
    updates = [row for row in rows if "val_loss" not in row]
    validations = [row for row in rows if "val_loss" in row]
    losses = [row.get("loss") for row in updates] + [row["val_loss"] for row in validations]
    lines = []
    if updates and sum(loss is not None for loss in losses) > 1:
        drawn = curve(title, "loss", Metrics.of_rows(updates), Metrics.of_rows(validations))
        lines += ["", *drawn.text(shown).splitlines()]
    table = last_rows(updates)
    return [*lines, "", *table] if table else lines


def last_rows(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table of the last updates of metrics.jsonl; none where there are no updates.

    A number that a row of an earlier version lacks is a dash.
    """
    shown = rows[-ROWS:]
    if not shown:
        return []
    head = ["step", *(name for name, _, _ in _COLUMNS), "time", ""]
    skips = any(row.get("skipped") for row in shown)
    table = [head, *map(_cells, shown)]
    return text_table(table if skips else [cells[:-1] for cells in table], left=())


def shown_number(row: Row, name: str, form: str) -> str:
    """Return a number of a row as text; one that is not finite is null in the log."""
    value = row.get(name)
    return format(value, form) if isinstance(value, int | float) and math.isfinite(value) else NOT_FINITE


def _cells(row: Row) -> list[str]:
    numbers = (shown_number(row, name, form) if name in row else "-" for _, name, form in _COLUMNS)
    seconds = row.get("seconds")
    time = duration(seconds) if isinstance(seconds, int | float) else "-"
    return [str(row["step"]), *numbers, time, "skipped" if row.get("skipped") else ""]
