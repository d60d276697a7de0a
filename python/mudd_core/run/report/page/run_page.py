"""Writes the page of one run, with its status."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from mudd_core.base.regular_files import write_text
from mudd_core.config import Config
from mudd_core.run.records.events import EventName
from mudd_core.run.report.page.elements import clock_text
from mudd_core.run.report.page.records import Records, read_records
from mudd_core.run.report.page.sections import SECTIONS
from mudd_core.run.report.page.shell import page
from mudd_core.run.store.run_folder import RunFolder


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


FILE = "report.html"  # in the work directory, where no other file is named


def write_page(folder: RunFolder, config: Config, file: Path) -> None:
    """Write the page of a run to a file. Raises UserError, FormatError, and SaveError where it cannot be written."""
    write_text(file, run_page(read_records(folder, config)))


def run_page(records: Records) -> str:
    """The page of a run as HTML."""
    sections = [section for make in SECTIONS if (section := make(records)) is not None]
    config, started = records.config, clock_text(records.facts.get("started"))
    since = f", started {started}" if started else ""
    subtitle = f"{config.model.family} in {records.folder}{since}"
    return page(config.name, subtitle, sections, status=status_of(records))
