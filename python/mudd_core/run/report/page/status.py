"""How a run is: running, finished, stopped, or interrupted without a word."""

from __future__ import annotations

from enum import StrEnum

from mudd_core.run.records.event_names import EventName
from mudd_core.run.report.page.records import Records


class Status(StrEnum):
    """The word beside the run's name; page.css gives each a color."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    EMPTY = "not started"


_BEGIN = (EventName.STARTED, EventName.RESUMED)
_END = {EventName.FINISHED: Status.FINISHED, EventName.STOPPED: Status.STOPPED}


def status_of(records: Records) -> Status:
    """The status by the lock, the last start or end among the events, and summary.json of a run without events."""
    if records.running:
        return Status.RUNNING
    names = [str(event["event"]) for event in records.events]
    last = next((name for name in reversed(names) if name in _BEGIN or name in _END), "")
    if last in _BEGIN:
        return Status.INTERRUPTED
    if last:
        return _END[EventName(last)]
    if records.summary:
        return Status.STOPPED if records.summary.get("stopped") else Status.FINISHED
    return Status.INTERRUPTED if records.updates.rows else Status.EMPTY
