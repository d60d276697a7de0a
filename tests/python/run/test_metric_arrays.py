"""Log entries as columns: a list becomes one column per element, and a missing value is NaN. Also the text chart."""

from __future__ import annotations

import numpy as np

from mudd_core.base.show.chart import COLUMNS, ROWS, Axis, text_chart
from mudd_core.run.records.events import StepRecord
from mudd_core.run.report.history import History
from mudd_core.run.store.metric_arrays import Metrics

ROWS_OF_EXPERTS = [
    {"step": 1, "tokens": 8, "loss": 2.5, "load": [[1, 2], [3, 4]]},
    {"step": 2, "tokens": 16, "loss": None, "skipped": True, "load": [[5, 6], [7, 8]], "alarms": ["2/0"]},
]


def test_columns_are_numbers_with_nan_where_there_is_none() -> None:
    found = Metrics.of_rows(ROWS_OF_EXPERTS)
    assert list(found) == [
        "step",
        "tokens",
        "loss",
        "load/0/0",
        "load/0/1",
        "load/1/0",
        "load/1/1",
        "skipped",
    ]
    assert found["tokens"].dtype == found["step"].dtype == np.int64
    np.testing.assert_array_equal(found["loss"], [2.5, np.nan])
    np.testing.assert_array_equal(found["skipped"], [np.nan, 1.0])
    np.testing.assert_array_equal(found["load/1/0"], [3.0, 7.0])
    assert repr(found) == "Metrics(2 rows, steps 1 to 2: step, tokens, loss, load/... (4), skipped)"
    assert repr(Metrics.of_rows([])) == "Metrics(0 rows: )"


def test_a_history_has_the_columns_of_its_rows_in_their_order() -> None:
    records = [
        StepRecord(step, 8 * step, 2.0, 0.1, 0.5, 9.0, 0.1, 1.0, metrics={"load": [1, 2]} if step > 1 else {})
        for step in (1, 2)
    ]
    history = History()
    for record in records:
        history.updated(record)
    want = Metrics.of_rows(record.row() for record in records)
    assert list(history.updates) == list(want)
    for name, column in want.items():
        np.testing.assert_array_equal(history.updates[name], column)


def test_a_text_chart_has_its_points_in_their_places() -> None:
    chart = text_chart(
        "title", Axis(0, 10, "step"), Axis(0, 1, "loss"), [(".", [(0, 1), (10, 0), (5, np.nan)])]
    )
    lines = chart.splitlines()
    assert len(lines) == ROWS + 3 and lines[0] == "title"
    assert lines[1].split("|")[1] == "." and lines[1].startswith("  1 ")
    assert lines[ROWS].split("|")[1] == " " * (COLUMNS - 1) + "."
    assert lines[-1].split() == ["0", "step", "10"]
