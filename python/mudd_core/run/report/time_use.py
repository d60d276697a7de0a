"""The time of a run by phase, summed over its last log entries, and its load in this time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mudd_core.base.types import Json, JsonObject
from mudd_core.run.ranks.load import LOAD
from mudd_core.run.records.phases import HIDDEN, PHASES, Phase
from mudd_core.run.store.metrics import Row, last_event, last_rows
from mudd_core.run.store.run_folder import RunFolder

_BYTES = 1 << 20  # of metrics.jsonl: about two thousand entries
_MOST = 1e18  # no time, size or count in a file is larger


@dataclass(frozen=True)
class TimeUse:
    """Sums over log entries. phases: seconds by phase. hidden: seconds with messages in transit during computation.

    load: means of the load over time (run/ranks/load.py). entries: the number of log entries. validated: targets of the
    last validation. peak: the mean fraction of the peak FLOP/s.
    """

    phases: Mapping[Phase, float] = field(default_factory=dict)
    hidden: float = 0.0
    load: Mapping[str, float] = field(default_factory=dict)
    entries: int = 0
    validated: int = 0
    peak: float = 0.0

    @property
    def total(self) -> float:
        """The seconds of all phases."""
        return sum(self.phases.values())

    def fraction(self, *phases: Phase) -> float:
        """Return the fraction of the time in these phases."""
        return sum(self.phases.get(phase, 0.0) for phase in phases) / self.total if self.total else 0.0


def sum_of(rows: Iterable[Row], tail: Mapping[str, Json] | None = None) -> TimeUse:
    """Return the sums of entries of metrics.jsonl. tail: the seconds by phase after the last one."""
    phases, load, hidden = dict.fromkeys(Phase, 0.0), dict[str, float](), 0.0
    entries, measured, validated, peak = 0, 0.0, 0, 0.0
    for row in rows:
        if "val_loss" in row:
            validated = int(number_in(row, "targets"))
        if not isinstance(found := row.get(PHASES), dict):
            continue
        entries += 1
        hidden += number_in(row, HIDDEN)
        peak += number_in(row, "peak_share")
        _add(phases, found)
        means = row.get(LOAD)
        if not isinstance(means, dict):
            continue
        seconds = number_in(means, "seconds")
        measured += seconds
        for name in means:
            load[name] = load.get(name, 0.0) + number_in(means, name) * seconds
    _add(phases, tail or {})
    means = {name: value / measured for name, value in load.items() if name != "seconds" and measured}
    return TimeUse(phases, hidden, means, entries, validated, peak / max(1, entries))


def number_in(values: Mapping[str, Json], name: str) -> float:
    """Return a number of a JSON object; 0 if it is missing, not finite or something else."""
    value = values.get(name)
    return float(value) if isinstance(value, int | float) and abs(value) < _MOST else 0.0


def _add(phases: dict[Phase, float], more: Mapping[str, Json]) -> None:
    """Add seconds by phase; names of later versions are ignored."""
    for phase in Phase:
        phases[phase] += number_in(more, phase)


def time_use(folder: RunFolder) -> TimeUse:
    """Return the use of time in the last log entries of a run; without entries if an earlier version wrote them."""
    rows = list(last_rows(folder, _BYTES))[::-1]
    # The first update plans the graph and touches its memory.
    first = next((place for place, row in enumerate(rows) if PHASES in row), 0)
    timed = sum(PHASES in row for row in rows)
    return sum_of(rows[first + 1 :] if timed > 2 else rows, _tail_of(folder))


def _tail_of(folder: RunFolder) -> JsonObject:
    """Return the phases in the last event of events.jsonl, if that is the end of the run; else an empty mapping."""
    found = last_event(folder).get(PHASES)
    return found if isinstance(found, dict) else {}
