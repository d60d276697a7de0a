"""The section of curves: losses, speed, gradient norm, learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mudd_core.run.report.page.line_chart import Mark, Series, line_chart
from mudd_core.run.report.page.records import Records
from mudd_core.run.report.page.section import Section
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


CURVES = (
    Curve("Loss", [("loss", "training")], [("val_loss", "validation")], "nats", wide=True),
    Curve("Speed", [("tokens_per_second", "tokens per second")], unit="tokens/s"),
    Curve("Percentage of the machine's peak", [("peak_share", "peak")], unit="%", scale=100.0),
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


def series_of(
    records: Records, table: Metrics, column: str, name: str, scale: float = 1.0, *, dots: bool = False
) -> Series:
    """A column of a run's updates or validations over its steps. KeyError for one that is not there."""
    return Series(name, records.places(table["step"]), np.asarray(scale * table[column], np.float64), dots)


def curves(records: Records) -> Section | None:
    """The charts of what the run has logged."""
    marks: list[Mark] = []
    charts = []
    for one in CURVES:
        parts = ((records.updates, one.columns, False), (records.validations, one.validations, True))
        series = [
            series_of(records, table, column, name, one.scale, dots=dots)
            for table, columns, dots in parts
            for column, name in columns
            if column in table
        ]
        charts.append(line_chart(one.title, series, unit=one.unit, marks=marks, wide=one.wide))
    body = "".join(charts)
    return Section("Curves", f'<div class="charts">{body}</div>') if body else None
