"""What happened to a run over its steps: saves, stops, skips and rewinds, in a lane each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from mudd_core.base.types import JsonObject
from mudd_core.run.records.events import EventName
from mudd_core.run.report.page.line_chart import COLUMNS, Mark, Series, line_chart
from mudd_core.run.report.page.records import ACROSS, Records

_MOST_LINES = 60  # of breaks through every chart; with more of them the charts could not be read


@dataclass(frozen=True)
class Moment:
    """What happened at a step, in words."""

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
    """The moments of each lane, ascending. Steps that a rewind or a resume has undone are kept: they happened."""
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
    """Of runs whose events have neither saves nor skips: the checkpoints that are kept, and the logged skips."""
    if not found["saves"]:
        found["saves"] = [Moment(step, "saved") for step in records.checkpoints]
    if not found["skips"] and "skipped" in records.updates:
        rows = np.flatnonzero(records.updates["skipped"] == 1)
        found["skips"] = [Moment(int(records.updates["step"][row]), "update skipped") for row in rows]


def breaks(records: Records) -> list[Mark]:
    """Resumes and rewinds, as lines through every chart; none where there are very many."""
    lanes = lanes_of(records)
    moments = [*(one for one in lanes["stops"] if one.text.startswith("resumed")), *lanes["rewinds"]]
    if len(moments) > _MOST_LINES:
        return []
    return [_mark(records, one) for one in moments]


def _mark(records: Records, moment: Moment) -> Mark:
    places = records.places(np.array([moment.step]))
    return Mark({name: float(places[name][0]) for name in ACROSS}, moment.text)


def time_line(records: Records) -> str:
    """The figure; '' for a run of which nothing is known."""
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
    """One moment a step, and where they are closer than a chart can show, one for all of them."""
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
