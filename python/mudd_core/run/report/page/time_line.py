"""The time line of a run's events, and the marks of its resumes and rewinds in other charts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from mudd_core.base.types import JsonObject
from mudd_core.run.records.events import EventName
from mudd_core.run.report.page.line_chart import line_chart
from mudd_core.run.report.page.records import ACROSS, Records
from mudd_core.run.report.page.series import COLUMNS, Mark, Series

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
    EventName.STARTED: ("starts", lambda event: "started"),
    EventName.RESUMED: ("starts", lambda event: f"resumed{_changed(event)}"),
    EventName.STOPPED: ("stops", lambda event: f"stopped: {event.get('reason')}"),
    EventName.FINISHED: ("ends", _finished),
    EventName.SKIPPED: ("skips", lambda event: f"update skipped: {event.get('reason')}"),
    EventName.REWOUND: ("rewinds", _rewind),
    EventName.SAVE_FAILED: ("faults", lambda event: f"save failed: {event.get('reason')}"),
    EventName.SOURCE_LOST: ("faults", lambda event: f"{event.get('file')}: {event.get('reason')}"),
}
_LANES = ("saves", "starts", "stops", "ends", "skips", "rewinds", "faults")  # the highest first


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
    moments = [*(one for one in lanes["starts"] if one.text.startswith("resumed")), *lanes["rewinds"]]
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
