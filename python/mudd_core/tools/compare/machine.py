"""On what a run was trained: level, threads, version and more, with the steps where a resume changed them."""

from __future__ import annotations

from collections.abc import Sequence

from mudd_core.base.types import Json, JsonObject
from mudd_core.run.records.machine import MACHINE
from mudd_core.tools.compare.compared import ComparedRun

UNKNOWN = "not recorded"
_NAMES = ("version", "commit", "cpu", "level", "threads", "ranks")


def machine_rows(runs: Sequence[ComparedRun]) -> list[list[str]]:
    """Return a row of texts for each name that differs between runs or within one: name, then a text a run."""
    parts = [_parts(run) for run in runs]
    rows = []
    for name in _NAMES:
        texts = [_text(one, name) for one in parts]
        if len(set(texts)) > 1 or any(" to step " in text for text in texts):
            rows.append([name, *texts])
    return rows


def machine_text(run: ComparedRun) -> str:
    """Return what a run was trained on, as a sentence without its end."""
    parts = _parts(run)
    known = [f"{name} {_text(parts, name)}" for name in _NAMES if _text(parts, name) != UNKNOWN]
    return ", ".join(known) or UNKNOWN


def _parts(run: ComparedRun) -> list[tuple[int, JsonObject]]:
    """(first step but one, machine) of each start and resume whose steps are still part of the run."""
    found: list[tuple[int, JsonObject]] = []
    for event in run.records.events:
        step = event.get("step", 0)
        if event["event"] not in ("started", "resumed") or not isinstance(step, int):
            continue
        while found and found[-1][0] >= step:
            found.pop()
        machine = event.get(MACHINE)
        ranks = {"ranks": event["ranks"]} if "ranks" in event else {}
        found.append((step, {**machine, **ranks} if isinstance(machine, dict) else ranks))
    return [(step, machine) for step, machine in found if step < max(1, run.last_step)]


def _text(parts: Sequence[tuple[int, JsonObject]], name: str) -> str:
    """The values of a name in the order of the steps: `avx2 to step 10, then avx512`."""
    values: list[tuple[int, str]] = []
    for step, machine in parts:
        value = _shown(machine.get(name))
        if not values or values[-1][1] != value:
            values.append((step, value))
    ends = [step for step, _ in values[1:]]
    texts = [f"{value} to step {end:,}" for (_, value), end in zip(values, ends, strict=False)]
    return ", then ".join([*texts, values[-1][1]]) if values else UNKNOWN


def _shown(value: Json) -> str:
    return UNKNOWN if value is None else str(value)
