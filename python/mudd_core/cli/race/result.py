"""The result of a race as JSON, as a table for the terminal, and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from mudd_core.base.show.tables import text_table
from mudd_core.base.types import Float64, JsonObject
from mudd_core.cli.race.standings import BITS, Row, Standing, minutes_to
from mudd_core.run.report.page.elements import Section, table, text
from mudd_core.run.report.page.line_chart import line_chart
from mudd_core.run.report.page.series import Series
from mudd_core.run.report.page.shell import page as page_of
from mudd_core.run.store.log_files import plain

_HEAD = ("recipe", "ms a step", "minutes", "steps", "gain over the first", "as the first after")
_NONE = "-"


@dataclass(frozen=True)
class RaceResult:
    """measure: the compared value. machine: where the steps were timed. rows: the first one is the reference."""

    measure: str
    machine: str
    seeds: int
    rows: tuple[Row, ...]


def with_times_to_first(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows with the minutes in which each recipe reaches the first recipe's means."""
    goals = [one.mean for one in rows[0].standings]
    found = []
    for row in rows:
        reached = tuple(
            one if goal is None else replace(one, as_first=minutes_to(goal, row.standings))
            for one, goal in zip(row.standings, goals, strict=True)
        )
        found.append(replace(row, standings=reached))
    return tuple(found)


def result_values(result: RaceResult) -> JsonObject:
    """Return the content of race.json."""
    recipes = []
    for row in result.rows:
        one = row.recipe
        about = {"name": one.name, "config": one.config or None, "arguments": list(one.arguments)}
        recipes.append(
            {**about, "seconds_per_step": row.seconds, "budgets": [asdict(s) for s in row.standings]}
        )
    found = {"measure": result.measure, "machine": result.machine, "seeds": result.seeds, "recipes": recipes}
    values: JsonObject = plain(found)
    return values


def terminal_table(result: RaceResult) -> str:
    """Return the table for a terminal: for each budget the recipes, best mean first."""
    return "\n".join(text_table([_head(result), *_lines(result)], left=(0,)))


def _head(result: RaceResult) -> list[str]:
    return [*_HEAD[:4], result.measure, *_HEAD[4:]]


def _lines(result: RaceResult) -> list[list[str]]:
    places = [(one, row) for row in result.rows for one in row.standings]
    best = sorted(places, key=lambda place: (place[0].minutes, place[0].mean is None, place[0].mean or 0.0))
    return [_line(one, row, row is result.rows[0]) for one, row in best]


def _line(one: Standing, row: Row, is_first: bool) -> list[str]:
    reached = _NONE if one.as_first is None else f"{one.as_first:.3g} min ({one.minutes / one.as_first:.2f}x)"
    return [
        row.recipe.name,
        f"{1e3 * row.seconds:.1f}",
        f"{one.minutes:g}",
        f"{one.steps:,}",
        _with_interval(one.mean, one.interval95, "") + _share(one),
        _NONE if is_first else _with_interval(one.gain, one.gain_interval95, "+"),
        _NONE if is_first else reached,
    ]


def _with_interval(value: float | None, interval: float | None, sign: str) -> str:
    if value is None:
        return _NONE
    return f"{value:{sign}.4f}" + ("" if interval is None else f" ± {interval:.4f}")


def _share(one: Standing) -> str:
    """Return how many of the seeds the mean has, if it does not have all."""
    count = sum(value is not None for value in one.results)
    return f" ({count} of {len(one.results)} seeds)" if 0 < count < len(one.results) else ""


def page(result: RaceResult) -> str:
    """Return one self-contained HTML page: the frontier of each recipe and the table."""
    head, lines = _head(result), _lines(result)
    return page_of(
        f"Race of {len(result.rows)} recipes",
        "",
        [
            Section("Frontier", f'<div class="charts">{_frontier(result)}</div>'),
            Section("Budgets", table(lines, head, "stacked") + text(_how(result))),
            Section(
                "Machine", text(f"{result.machine}. Minutes are steps times the step time measured there.")
            ),
        ],
        across=("minutes",),
    )


def _frontier(result: RaceResult) -> str:
    return line_chart(
        f"{result.measure.capitalize()} after whole runs of different lengths",
        [_series(row, result) for row in result.rows if any(one.mean is not None for one in row.standings)],
        wide=True,
        note=f"Bands: 95 % interval of {result.seeds} seeds." if result.seeds > 1 else "",
    )


def _series(row: Row, result: RaceResult) -> Series:
    shown = [one for one in row.standings if one.mean is not None]
    unit = "bits per byte" if result.measure == BITS else "nats"
    spread = [one.interval95 for one in shown]
    return Series(
        row.recipe.name,
        {"minutes": _column([one.minutes for one in shown])},
        _column([one.mean for one in shown if one.mean is not None]),
        texts=[f"{_with_interval(one.mean, one.interval95, '')} {unit}" for one in shown],
        spread=_column([one for one in spread if one is not None]) if None not in spread else None,
    )


def _how(result: RaceResult) -> str:
    """Return how the values were measured."""
    gain = "Each run has its own whole schedule. The gain is the first recipe's value minus the recipe's"
    if result.seeds == 1:
        return f"{gain}; one seed, so there are no intervals."
    return f"{gain}, in pairs of one seed; ± half the 95 % interval (Student's t) of {result.seeds} seeds."


def _column(values: Sequence[float]) -> Float64:
    return np.array(values, np.float64)
