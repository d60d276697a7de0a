"""The section of the machine and the program: one row for each start and resume that recorded them."""

from __future__ import annotations

from collections.abc import Iterator

from mudd_core.base.types import Json
from mudd_core.run.records.machine import MACHINE
from mudd_core.run.report.page.elements import clock_text, table
from mudd_core.run.report.page.records import Records
from mudd_core.run.report.page.section import Section

_HEAD = ("from step", "time", "cpu", "level", "threads", "ranks", "version", "commit")


def machines(records: Records) -> Section | None:
    """Where the run has trained. None for a run of an earlier version, which recorded nothing of it."""
    rows = list(_rows(records))
    if not rows:
        return None
    used = [place for place, name in enumerate(_HEAD) if name != "ranks" or any(row[place] for row in rows)]
    shown = [[row[place] for place in used] for row in rows]
    return Section("Machine", table(shown, [_HEAD[place] for place in used], "numbers"))


def _rows(records: Records) -> Iterator[list[str]]:
    for event in records.events:
        machine = event.get(MACHINE)
        if isinstance(machine, dict):
            known = {**event, **machine}
            first = [_text(known.get("step", 0)), clock_text(known.get("time"))]
            yield [*first, *(_text(known.get(name)) for name in _HEAD[2:])]


def _text(value: Json) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
