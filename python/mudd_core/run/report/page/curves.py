"""The Curves section: losses, speed, gradient norm, learning rate, and a time line of the run's events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from mudd_core.base.types import JsonObject
from mudd_core.run.records.events import EventName
from mudd_core.run.records.machine import PEAK_MEMORY
from mudd_core.run.report.page.elements import Section, folded, table
from mudd_core.run.report.page.line_chart import COLUMNS, Mark, Series, line_chart
from mudd_core.run.report.page.records import ACROSS, Places, Records
from mudd_core.run.store.metric_arrays import Metrics

_MOST_LINES = 60  # marks of breaks in a chart; more of them would make it unreadable


@dataclass(frozen=True)
class Moment:
    """An event of a run: its step and a description."""

    step: int
    text: str


def _number(event: JsonObject, name: str) -> int:
    value = event.get(name)
    return value if isinstance(value, int) else 0


def _rewind(event: JsonObject) -> str:
    first, last = _number(event, "first_batch"), _number(event, "last_batch")
    start, end = _number(event, "from_step"), _number(event, "to_step")
    return f"back from step {start:,} to {end:,}; batches {first:,} to {last:,} are left out"


def _changed(event: JsonObject) -> str:
    changes = event.get("changed")
    return f" with {'; '.join(map(str, changes))}" if isinstance(changes, list) and changes else ""


def _finished(event: JsonObject) -> str:
    return f"ended by {event['reason']}" if event.get("reason") else "finished"


_TEXTS: dict[EventName, tuple[str, Callable[[JsonObject], str]]] = {
    EventName.SAVED: ("saves", lambda event: "saved"),
    EventName.STARTED: ("stops", lambda event: "started"),
    EventName.RESUMED: ("stops", lambda event: f"resumed{_changed(event)}"),
    EventName.STOPPED: ("stops", lambda event: f"stopped: {event.get('reason')}"),
    EventName.FINISHED: ("stops", _finished),
    EventName.SKIPPED: ("skips", lambda event: f"update skipped: {event.get('reason')}"),
    EventName.REWOUND: ("rewinds", _rewind),
    EventName.SAVE_FAILED: ("faults", lambda event: f"save failed: {event.get('reason')}"),
    EventName.SOURCE_LOST: ("faults", lambda event: f"{event.get('file')}: {event.get('reason')}"),
}
_LANES = ("saves", "stops", "skips", "rewinds", "faults")  # the highest first


def lanes_of(records: Records) -> dict[str, list[Moment]]:
    """Return the moments of each lane by ascending step, also those at steps that a rewind or resume has undone."""
    found: dict[str, list[Moment]] = {name: [] for name in _LANES}
    for event in records.events:
        name = str(event["event"])
        if name in _TEXTS:
            lane, text = _TEXTS[EventName(name)]
            step = _number(event, "to_step" if name == EventName.REWOUND else "step")
            found[lane].append(Moment(step, text(event)))
    _add_older(records, found)
    return {name: sorted(dict.fromkeys(moments), key=lambda one: one.step) for name, moments in found.items()}


def _add_older(records: Records, found: dict[str, list[Moment]]) -> None:
    """Add saves from the kept checkpoints and skips from metrics.jsonl, if an older run has no such events."""
    if not found["saves"]:
        found["saves"] = [Moment(step, "saved") for step in records.checkpoints]
    if not found["skips"] and "skipped" in records.updates:
        rows = np.flatnonzero(records.updates["skipped"] == 1)
        found["skips"] = [Moment(int(records.updates["step"][row]), "update skipped") for row in rows]


def breaks(records: Records) -> list[Mark]:
    """Return marks for resumes and rewinds, shown in each chart; none if there are more than _MOST_LINES."""
    lanes = lanes_of(records)
    moments = [*(one for one in lanes["stops"] if one.text.startswith("resumed")), *lanes["rewinds"]]
    if len(moments) > _MOST_LINES:
        return []
    return [_mark(records, one) for one in moments]


def _mark(records: Records, moment: Moment) -> Mark:
    places = records.places(np.array([moment.step]))
    return Mark({name: float(places[name][0]) for name in ACROSS}, moment.text)


def time_line(records: Records) -> str:
    """Return the HTML of the time line; '' for a run without events."""
    lanes = {name: moments for name, moments in lanes_of(records).items() if moments}
    end = max((one.step for moments in lanes.values() for one in moments), default=0)
    last = int(records.updates["step"][-1]) if records.updates.rows else 0
    series = []
    for place, (name, moments) in enumerate(lanes.items()):
        shown = _merged(moments, max(end, last))
        steps = np.array([one.step for one in shown], np.float64)
        height = np.full(len(shown), float(len(lanes) - 1 - place))
        texts = [one.text for one in shown]
        color = _LANES.index(name)
        series.append(Series(name, records.places(steps), height, dots=True, color=color, texts=texts))
    return line_chart("Time line", series, lanes=True, wide=True, ends=records.places(np.array([0, last])))


def _merged(moments: Sequence[Moment], end: int) -> list[Moment]:
    """Return the moments with those merged that are too close for the chart to show them separately."""
    column = max(1.0, end / COLUMNS)
    return [_one(list(group)) for _, group in groupby(moments, key=lambda one: int(one.step / column))]


def _one(moments: Sequence[Moment]) -> Moment:
    texts = list(dict.fromkeys(one.text for one in moments))
    first, last = moments[0].step, moments[-1].step
    if first == last:
        return Moment(first, "; ".join(texts))
    return Moment(first, f"{len(moments)} from step {first:,} to {last:,}: {_some(texts)}")


def _some(texts: Iterable[str], most: int = 3) -> str:
    given = list(texts)
    return "; ".join(given[:most]) + ("; ..." if len(given) > most else "")


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
    """Return the section with a chart for each kind of metric that the run has logged; None without any."""
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
    """Return the chart of the peak memory at each save and at the end."""
    found = sorted(
        (step, size / 2**20)
        for event in records.events
        if isinstance(size := event.get(PEAK_MEMORY), int) and isinstance(step := event.get("step"), int)
    )
    steps, sizes = (np.array([pair[place] for pair in found], np.float64) for place in (0, 1))
    series = Series("peak memory", records.places(steps), sizes, dots=len(found) == 1)
    note = "Largest resident memory of the first process, at each save and at the end."
    return line_chart("Memory", [series], unit="MiB", marks=marks, note=note, ends=ends)
