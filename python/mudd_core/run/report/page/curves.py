"""The Curves section: losses, speed, gradient norm, learning rate, and a time line of the run's events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mudd_core.run.records.machine import PEAK_MEMORY
from mudd_core.run.report.page.elements import Section, charts, folded, table, text
from mudd_core.run.report.page.line_chart import line_chart
from mudd_core.run.report.page.records import Places, Records
from mudd_core.run.report.page.series import Mark, Series
from mudd_core.run.report.page.time_line import breaks, time_line
from mudd_core.run.store.metric_arrays import Metrics


@dataclass(frozen=True)
class Curve:
    """A chart of columns of metrics.jsonl. scale: the factor of all values."""

    title: str
    columns: Sequence[tuple[str, str]]  # (column of the updates, its name in the chart)
    validations: Sequence[tuple[str, str]] = ()
    unit: str = ""
    scale: float = 1.0
    wide: bool = False
    best: bool = False  # whether to mark the best validation; for losses


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

_MOST_DOTS = 150  # validations that are drawn as dots; more of them are drawn as a line
_MOST_ROWS = 200  # rows of the table of validations
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
    """Return a column of a run's updates or validations as a series. Raise KeyError if the table lacks it."""
    return Series(name, records.places(table["step"]), np.asarray(scale * table[column], np.float64), dots)


def best_of(records: Records, name: str, color: int | None = None) -> list[Series]:
    """Return a series with one dot, at the step and loss of the best validation; an empty list without one."""
    best = records.best_validation
    if best is None:
        return []
    loss, step = best
    return [Series(name, records.places(np.array([step])), np.array([loss]), dots=True, color=color)]


def curves(records: Records) -> Section | None:
    """Return the section with a chart for each kind of metric that the run has logged; None without any.

    Metrics that are logged at one step only are in a table, because they have no curve.
    """
    marks, figures, lone = breaks(records), list[str](), list[tuple[str, str, str]]()
    last = records.updates["step"][-1:] if records.updates.rows else np.zeros(1)
    ends = records.places(np.concatenate([[0.0], last]))
    for one in CURVES:
        series = _series(records, one)
        if all(part.lone for part in series):
            lone += _values(one, series)
            continue
        series += best_of(records, "best validation") if one.best else []
        figures.append(line_chart(one.title, series, unit=one.unit, marks=marks, wide=one.wide, ends=ends))
    figures.insert(1, time_line(records))
    figures.append(_memory(records, marks, ends))
    body = charts(filter(None, figures)) + _logged_once(lone) + _validations(records)
    return Section("Curves", body) if body else None


def _series(records: Records, curve: Curve) -> list[Series]:
    """Return the columns of a chart that the run has logged."""
    few = records.validations.rows <= _MOST_DOTS
    parts = ((records.updates, curve.columns, False), (records.validations, curve.validations, few))
    return [
        series_of(records, logged, column, name, curve.scale, dots=dots)
        for logged, columns, dots in parts
        for column, name in columns
        if column in logged
    ]


def _values(curve: Curve, series: Sequence[Series]) -> Iterator[tuple[str, str, str]]:
    """Yield the name, value and step of each series with a finite value."""
    single = len(curve.columns) + len(curve.validations) == 1
    for one in series:
        name = curve.title if single else f"{curve.title}, {one.name}"
        for value, step in zip(one.values.tolist(), one.places["steps"].tolist(), strict=True):
            if np.isfinite(value):
                yield name, f"{value:,.5g} {curve.unit}".rstrip(), f"{step:,.0f}"


def _logged_once(rows: Sequence[tuple[str, str, str]]) -> str:
    """Return the table of the metrics without a curve; '' without any."""
    if not rows:
        return ""
    note = text("These metrics are logged at one step only, so they have no curve.", "note")
    return table(rows, ("metric", "value", "step"), "numbers") + note


def _validations(records: Records) -> str:
    """Return a folded table of the last _MOST_ROWS validations; '' without any."""
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
    """Return a value as a table cell; '' if it is NaN or infinite."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}" if np.isfinite(value) else ""


def _memory(records: Records, marks: Sequence[Mark], ends: Places) -> str:
    """Return the chart of the peak memory at each save and at the end; '' if it was measured at one step only."""
    found: dict[int, float] = {}
    for event in records.events:
        size, step = event.get(PEAK_MEMORY), event.get("step")
        if isinstance(size, int) and isinstance(step, int):
            found[step] = max(size / 2**20, found.get(step, 0.0))
    if len(found) < 2:
        return ""
    steps = np.array(sorted(found), np.float64)
    sizes = np.array([found[step] for step in sorted(found)], np.float64)
    note = "Largest resident memory of the first process, at each save and at the end."
    series = Series("peak memory", records.places(steps), sizes)
    return line_chart("Memory", [series], unit="MiB", marks=marks, note=note, ends=ends)
