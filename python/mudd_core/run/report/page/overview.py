"""The first section: how far the run is and what it has reached, a number each."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from mudd_core.base.show.chart import number
from mudd_core.base.show.printable import escaped
from mudd_core.base.units import bytes_text, duration
from mudd_core.run.records.machine import PEAK_MEMORY
from mudd_core.run.report.page.records import Records
from mudd_core.run.report.page.section import Section

_LAST = 100  # rows that a speed is the median of


def overview(records: Records) -> Section:
    """Tiles of numbers."""
    tiles = "".join(
        f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd><dd>{escaped(more)}</dd></div>"
        for name, value, more in _facts(records)
    )
    return Section("Overview", f'<dl class="facts">{tiles}</dl>')


def _facts(records: Records) -> Iterator[tuple[str, str, str]]:
    """Name, value, and what the value is of."""
    updates = records.updates
    yield "step", f"{records.last_step:,}", f"of {records.config.train.steps:,}"
    if parameters := records.parameters:
        yield "parameters", number(parameters), ""
    if updates.rows:
        yield "training loss", _last(updates["loss"], ".4f"), "last logged"
    if best := records.best_validation:
        yield "best validation", f"{best[0]:.4f}", f"at step {best[1]:,}"
    if records.out_of_patience:
        yield "out of patience", str(records.ending.get("since_best")), "validations without a better one"
    if "tokens" in updates:
        yield "tokens", number(float(updates["tokens"][-1])), ""
    if "seconds" in updates:
        yield "time", duration(float(updates["seconds"][-1])), "in training"
    if "tokens_per_second" in updates:
        yield "speed", _median(updates["tokens_per_second"], ",.0f"), "tokens/s"
    if "peak_share" in updates:
        yield "of peak", _median(updates["peak_share"], ".0%"), ""
    memory = [event[PEAK_MEMORY] for event in records.events if PEAK_MEMORY in event]
    if sizes := [size for size in memory if isinstance(size, int)]:
        yield "memory", bytes_text(max(sizes)), "peak"


def _last(values: np.ndarray[tuple[int, ...], np.dtype[np.int64 | np.float64]], form: str) -> str:
    value = float(values[-1])
    return format(value, form) if math.isfinite(value) else "not finite"


def _median(values: np.ndarray[tuple[int, ...], np.dtype[np.int64 | np.float64]], form: str) -> str:
    recent = np.asarray(values[-_LAST:], np.float64)
    recent = recent[np.isfinite(recent)]
    return format(float(np.median(recent)), form) if recent.size else "not finite"
