"""The page of a run: its sections in order, and its status."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

import numpy as np

from mudd_core.base.regular_files import write_text
from mudd_core.base.show.chart import number
from mudd_core.base.types import Json
from mudd_core.base.units import bytes_text, duration
from mudd_core.config import Config, differences
from mudd_core.config.describe import listing, shown
from mudd_core.config.fields import walk
from mudd_core.run.records.events import EventName
from mudd_core.run.records.machine import MACHINE, PEAK_MEMORY
from mudd_core.run.report.families.experts import experts
from mudd_core.run.report.families.measured import connections, slots
from mudd_core.run.report.families.mup import mup
from mudd_core.run.report.page.curves import curves
from mudd_core.run.report.page.elements import (
    Section,
    cards,
    clock_text,
    folded,
    link,
    preformatted,
    table,
    text,
)
from mudd_core.run.report.page.records import Records, read_records
from mudd_core.run.report.page.shell import page
from mudd_core.run.report.page.sources import sources
from mudd_core.run.report.page.spikes import spikes
from mudd_core.run.report.page.time_by_phase import time_by_phase
from mudd_core.run.store.metrics import samples_of
from mudd_core.run.store.run_folder import RunFolder

FAMILY_SECTIONS = (experts, connections, slots, mup)

_LAST = 100  # log entries whose median is shown as the speed


def overview(records: Records) -> Section:
    """Return the section with the main metrics of the run as tiles."""
    return Section("Overview", cards(_facts(records)))


def _facts(records: Records) -> Iterator[tuple[str, str, str]]:
    """Yield (name, value, unit or explanation) for each tile."""
    updates = records.updates
    yield "step", f"{records.last_step:,}", f"of {records.config.train.steps:,}"
    if parameters := records.parameters:
        yield "parameters", number(parameters), ""
    if updates.rows:
        yield "training loss", _last(updates["loss"], ".4f"), "last logged"
    if best := records.best_validation:
        yield "best validation", f"{best[0]:.4f}", f"at step {best[1]:,}"
        if bits := _bits_per_byte(records, best[1]):
            yield "bits per byte", f"{bits:.4f}", "best validation"
    if records.out_of_patience:
        yield "out of patience", str(records.ending.get("since_best")), "validations without a better one"
    if "tokens" in updates:
        yield "tokens", number(float(updates["tokens"][-1])), ""
    if "seconds" in updates:
        yield "time", duration(float(updates["seconds"][-1])), "in training"
    if "tokens_per_second" in updates:
        yield "speed", _median(updates["tokens_per_second"], ",.0f"), "tokens/s"
    if "peak_share" in updates:
        yield "of peak", _median(updates["peak_share"], ".0%"), ""
    memory = [event[PEAK_MEMORY] for event in records.events if PEAK_MEMORY in event]
    if sizes := [size for size in memory if isinstance(size, int)]:
        yield "memory", bytes_text(max(sizes)), "peak"


def _bits_per_byte(records: Records, step: int) -> float:
    """Return the bits per byte of the validation at a step; 0 if it has none, as for data that is no text."""
    validations = records.validations
    if "val_bits_per_byte" not in validations:
        return 0.0
    found = validations["val_bits_per_byte"][validations["step"] == step]
    return float(found[-1]) if found.size and np.isfinite(found[-1]) else 0.0


def _last(values: np.ndarray[tuple[int, ...], np.dtype[np.int64 | np.float64]], form: str) -> str:
    value = float(values[-1])
    return format(value, form) if math.isfinite(value) else "not finite"


def _median(values: np.ndarray[tuple[int, ...], np.dtype[np.int64 | np.float64]], form: str) -> str:
    recent = np.asarray(values[-_LAST:], np.float64)
    recent = recent[np.isfinite(recent)]
    return format(float(np.median(recent)), form) if recent.size else "not finite"


_HEAD = ("from step", "time", "cpu", "level", "threads", "ranks", "version", "commit")


def machines(records: Records) -> Section | None:
    """Return the section with the machines that the run has used; None if an earlier version recorded none."""
    rows = list(_rows(records))
    if not rows:
        return None
    used = [place for place, name in enumerate(_HEAD) if name != "ranks" or any(row[place] for row in rows)]
    shown = [[row[place] for place in used] for row in rows]
    return Section("Machine", table(shown, [_HEAD[place] for place in used], "stacked"))


def _rows(records: Records) -> Iterator[list[str]]:
    for event in records.events:
        machine = event.get(MACHINE)
        if isinstance(machine, dict):
            known = {**event, **machine}
            first = [_text(known.get("step", 0)), clock_text(known.get("time"))]
            yield [*first, *(_text(known.get(name)) for name in _HEAD[2:])]


def _text(value: Json) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


MOST = 24  # samples on a page, evenly spaced and with the last one
MOST_CHARACTERS = 8_000  # characters of a sample that the page shows


def samples(records: Records) -> Section | None:
    """Return the section with the last generated sample, and with earlier ones folded; None if there is no sample."""
    found = samples_of(records.folder)
    if not found:
        return None
    places = sorted(
        {round(place) for place in np.linspace(0, len(found) - 1, min(MOST, len(found))).tolist()}
    )
    parts: list[str] = []
    for place in reversed(places):
        sample = found[place]
        written = preformatted((sample.prompt + sample.text)[:MOST_CHARACTERS])
        title = f"Step {sample.step:,}"
        parts.append(folded(title, written) if parts else text(title) + written)
    return Section("Samples of text", "".join(parts))


def settings(records: Records) -> Section:
    """Return the section with the config: the fields that differ from the defaults, and the whole config folded."""
    config = records.config
    defaults = Config(model=type(config.model)())
    meanings = {info.path: info.text for info in walk(config)}
    changed = [
        (one.path, _value(one.asked), _value(one.saved), meanings.get(one.path, ""))
        for one in differences(defaults, config)
    ]
    family = config.model.family
    first = (
        table(changed, ("field", "value", f"default of {family}", "meaning"), "settings")
        if changed
        else text(f"All fields have the defaults of the family {family}.")
    )
    return Section("Config", first + folded("The whole config", preformatted(listing(config))))


def _value(value: bool | int | float | str | None) -> str:
    return "" if value is None else shown(value)


MakeSection: TypeAlias = Callable[[Records], Section | None]

SECTIONS: tuple[MakeSection, ...] = (
    overview,
    curves,
    spikes,
    sources,
    time_by_phase,
    samples,
    *FAMILY_SECTIONS,
    machines,
    settings,
)


class Status(StrEnum):
    """The status next to the run's name; page.css defines a color for each."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    EMPTY = "not started"


_BEGIN = (EventName.STARTED, EventName.RESUMED)
_END = {EventName.FINISHED: Status.FINISHED, EventName.STOPPED: Status.STOPPED}


def status_of(records: Records) -> Status:
    """Return the status, from the lock and the last start or end event; without events, from summary.json."""
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


FILE = "report.html"  # default file, in the work directory


def write_page(folder: RunFolder, config: Config, file: Path) -> None:
    """Write the page of a run to a file.

    Raise UserError or FormatError as read_records, and SaveError if the file cannot be written.
    """
    write_text(file, run_page(read_records(folder, config), file))


def run_page(records: Records, file: Path | None = None) -> str:
    """Return the page of a run as HTML. file: its place, for links; by default FILE in the run's folder."""
    sections = [section for make in SECTIONS if (section := make(records)) is not None]
    config, started = records.config, clock_text(records.facts.get("started"))
    since = f", started {started}" if started else ""
    subtitle = f"{config.model.family} in {records.folder}{since}"
    log = _log_link(records.folder, file or records.folder.path / FILE)
    return page(config.name, subtitle, sections, status=status_of(records), more=log)


def _log_link(folder: RunFolder, file: Path) -> str:
    """Return a link from a page to the log of the run; '' if there is none."""
    log = folder.output_file
    if not log.is_file():
        return ""
    return f" · {link(log.name, os.path.relpath(log, file.parent))}"
