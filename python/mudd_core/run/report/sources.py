"""The table of the sources of a mixture, from the columns of metrics.jsonl that have their names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from mudd_core.run.records.by_source import sources_in
from mudd_core.run.store.metrics import Row

# (column of metrics.jsonl, head of the table, format of a number)
_COLUMNS = (
    ("share", "share", ".2%"),
    ("tokens", "tokens", ",.0f"),
    ("epochs", "epochs", ".3f"),
    ("loss", "loss", ".4f"),
    ("bits_per_byte", "bits/byte", ".4f"),
    ("val_loss", "val loss", ".4f"),
    ("val_bits_per_byte", "val bits/byte", ".4f"),
)


def latest(rows: Iterable[Row]) -> dict[str, float]:
    """Return the last finite value of each column of a source, by the column's name."""
    found: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            if "/" in name and isinstance(value, int | float) and math.isfinite(value):
                found[name] = float(value)
    return found


def source_table(values: Mapping[str, float]) -> list[list[str]]:
    """Return the head and one row for each source; empty for a run without a mixture. values: by column name."""
    sources = sources_in(values)
    used = [
        (column, head, form)
        for column, head, form in _COLUMNS
        if any(f"{column}/{source}" in values for source in sources)
    ]
    if not sources:
        return []
    rows = [["source", *(head for _, head, _ in used)]]
    for source in sources:
        cells = [(values.get(f"{column}/{source}"), form) for column, _, form in used]
        rows.append([source, *("-" if value is None else format(value, form) for value, form in cells)])
    return rows
