"""Writes the page of one run."""

from __future__ import annotations

from pathlib import Path

from mudd_core.base.regular_files import write_text
from mudd_core.config import Config
from mudd_core.run.report.page.elements import clock_text
from mudd_core.run.report.page.records import Records, read_records
from mudd_core.run.report.page.sections import SECTIONS
from mudd_core.run.report.page.shell import page
from mudd_core.run.report.page.status import status_of
from mudd_core.run.store.run_folder import RunFolder

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
