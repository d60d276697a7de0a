"""The section of curves: losses, speed, gradient norm, learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mudd_core.run.records.machine import PEAK_MEMORY
from mudd_core.run.report.page.elements import folded, table
from mudd_core.run.report.page.line_chart import Mark, Series, line_chart
from mudd_core.run.report.page.records import Places, Records
from mudd_core.run.report.page.section import Section
from mudd_core.run.report.page.time_line import breaks, time_line
from mudd_core.run.store.metric_arrays import Metrics


@dataclass(frozen=True)
class Curve:
    """A chart of columns of metrics.jsonl. scale: what a number is multiplied by."""

    title: str
    columns: Sequence[tuple[str, str]]  # column of the updates, its name in the chart
    validations: Sequence[tuple[str, str]] = ()
    unit: str = ""
    scale: float = 1.0
    wide: bool = False
    best: bool = False  # whether the best validation is marked; of losses


CURVES = (
    Curve("Loss", [("loss", "training")], [("val_loss", "validation")], "nats", wide=True, best=True),
    Curve("Speed", [("tokens_per_second", "tokens per second")], unit="tokens/s"),
    Curve("Percentage of peak", [("peak_share", "of peak")], unit="%", scale=100.0),
    Curve("Gradient norm", [("grad_norm", "gradient norm")]),
    Curve("Learning rate", [("lr", "learning rate")]),
    Curve(
        "Accuracy",
        [("accuracy", "training")],
        [("val_accuracy", "validation")],
        "%",
        100.0,
    ),
)

_MOST_DOTS = 150  # validations that are shown as dots; more of them are a line
_MOST_ROWS = 200  # of the table of validations
_VALIDATED = (
    ("step", "step"),
    ("val_loss", "loss in nats"),
    ("val_bits_per_byte", "bits per byte"),
    ("val_ppl", "perplexity"),
    ("val_accuracy", "accuracy"),
)


def series_of(
    records: Records, table: Metrics, column: str, name: str, scale: float = 1.0, *, dots: bool = False
) -> Series:
    """A column of a run's updates or validations over its steps. KeyError for one that is not there."""
    return Series(name, records.places(table["step"]), np.asarray(scale * table[column], np.float64), dots)


def best_of(records: Records, name: str, color: int | None = None) -> list[Series]:
    """A dot at the loss and the step of the best validation; empty without one."""
    best = records.best_validation
    if best is None:
        return []
    loss, step = best
    return [Series(name, records.places(np.array([step])), np.array([loss]), dots=True, color=color)]


def curves(records: Records) -> Section | None:
    """The charts of what the run has logged."""
    marks, charts = breaks(records), list[str]()
    last = records.updates["step"][-1:] if records.updates.rows else np.zeros(1)
    ends = records.places(np.concatenate([[0.0], last]))
    for one in CURVES:
        few = records.validations.rows <= _MOST_DOTS
        parts = ((records.updates, one.columns, False), (records.validations, one.validations, few))
        series = [
            series_of(records, table, column, name, one.scale, dots=dots)
            for table, columns, dots in parts
            for column, name in columns
            if column in table
        ]
        series += best_of(records, "best validation") if one.best else []
        charts.append(line_chart(one.title, series, unit=one.unit, marks=marks, wide=one.wide, ends=ends))
    charts.insert(1, time_line(records))
    charts.append(_memory(records, marks, ends))
    body = "".join(charts)
    if not body:
        return None
    return Section("Curves", f'<div class="charts">{body}</div>{_validations(records)}')


def _validations(records: Records) -> str:
    """The validations as a folded table, the last ones of very many; '' without one."""
    found = records.validations
    columns = [(column, title) for column, title in _VALIDATED if column in found]
    if not found.rows:
        return ""
    cells = [[_cell(value) for value in found[column][-_MOST_ROWS:].tolist()] for column, _ in columns]
    rows = zip(*cells, strict=True)
    count = f"the last {_MOST_ROWS} of {found.rows:,}" if found.rows > _MOST_ROWS else f"{found.rows:,}"
    return folded(
        f"Validations as a table ({count})", table(rows, [title for _, title in columns], "numbers")
    )


def _cell(value: float) -> str:
    """A number of the table; nothing for one that is not finite or not there."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}" if np.isfinite(value) else ""


def _memory(records: Records, marks: Sequence[Mark], ends: Places) -> str:
    """The peak of memory at each save and end."""
    found = sorted(
        (step, size / 2**20)
        for event in records.events
        if isinstance(size := event.get(PEAK_MEMORY), int) and isinstance(step := event.get("step"), int)
    )
    steps, sizes = (np.array([pair[place] for pair in found], np.float64) for place in (0, 1))
    series = Series("peak memory", records.places(steps), sizes, dots=len(found) == 1)
    note = "Largest resident memory of the first process, at each save and at the end."
    return line_chart("Memory", [series], unit="MiB", marks=marks, note=note, ends=ends)
