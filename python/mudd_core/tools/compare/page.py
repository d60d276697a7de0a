"""A comparison as one self-contained page: curves over each other, and the tables of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mudd_core.run.report.page.curves import best_of
from mudd_core.run.report.page.elements import Section, preformatted, table, text
from mudd_core.run.report.page.line_chart import Mark, Series, line_chart
from mudd_core.run.report.page.shell import page
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.tools.compare.compared import ComparedRun, column_of, short_names, steps_of
from mudd_core.tools.compare.first_difference import first_difference
from mudd_core.tools.compare.part import Part
from mudd_core.tools.compare.parts import parts_after_curves, parts_before_curves

_Tables = Callable[[ComparedRun], Metrics]
# Title, column, unit, of which table, over both columns of the page.
_CHARTS: Sequence[tuple[str, str, str, _Tables, bool]] = (
    ("Training loss", "loss", "nats", lambda run: run.updates, True),
    ("Validation loss", "val_loss", "nats", lambda run: run.validations, False),
    ("Gradient norm", "grad_norm", "", lambda run: run.updates, False),
    ("Speed", "tokens_per_second", "tokens/s", lambda run: run.updates, False),
    ("Learning rate", "lr", "", lambda run: run.updates, False),
)


def comparison_page(runs: Sequence[ComparedRun]) -> str:
    """The page as HTML."""
    first, *others = (f"{run.letter} {name}" for run, name in zip(runs, short_names(runs), strict=True))
    before, after = parts_before_curves(runs), parts_after_curves(runs)
    sections = [_section(before[0]), _curves(runs), *map(_section, (*before[1:], *after))]
    return page(f"{first} compared with {', '.join(others)}", "", sections)


def _section(part: Part) -> Section:
    head, *rows = part.rows or [[]]
    body = table(rows, head) if rows else ""
    for note in part.notes:
        body += preformatted(note.strip()) if note.startswith(" ") else text(note)
    return Section(part.title[:1].upper() + part.title[1:], body)


def _curves(runs: Sequence[ComparedRun]) -> Section:
    """The charts of all runs, and of the distance of each loss from that of the first run."""
    names = [f"{run.letter} {name}" for run, name in zip(runs, short_names(runs), strict=True)]
    marks = _marks(runs)
    charts = []
    for title, column, unit, of_run, wide in _CHARTS:
        series = [
            Series(name, run.records.places(of_run(run)["step"]), column_of(of_run(run), column), color=color)
            for color, (run, name) in enumerate(zip(runs, names, strict=True))
            if column in of_run(run)
        ]
        if column == "val_loss":
            for color, (run, name) in enumerate(zip(runs, names, strict=True)):
                series += best_of(run.records, f"{name}, best", color)
        charts.append(line_chart(title, series, unit=unit, marks=marks, wide=wide))
    base, *others = runs
    less = [
        _less(base, run, name, color)
        for color, (run, name) in enumerate(zip(others, names[1:], strict=True), 1)
    ]
    charts.append(line_chart(f"Training loss less that of {base.letter}", less, unit="nats", marks=marks))
    return Section("Curves", f'<div class="charts">{"".join(charts)}</div>')


def _less(base: ComparedRun, run: ComparedRun, name: str, color: int) -> Series:
    """The training loss of a run less that of the base, at the steps that both have logged."""
    common, left, right = np.intersect1d(steps_of(base.updates), steps_of(run.updates), return_indices=True)
    less = column_of(run.updates, "loss")[right] - column_of(base.updates, "loss")[left]
    return Series(name, run.records.places(common), less, color=color)


def _marks(runs: Sequence[ComparedRun]) -> list[Mark]:
    """The first differing steps."""
    base, *others = runs
    marks = []
    for run in others:
        step = first_difference(base, run).step
        if step is not None:
            places = base.records.places(np.array([step]))
            at = {name: float(place[0]) for name, place in places.items()}
            marks.append(Mark(at, f"step {step:,}: first difference of {base.letter} and {run.letter}"))
    return marks
