"""Compare runs: differing settings, losses and curves, and the first step with different values.

    python3 launch.py compare runs/one runs/two
    python3 launch.py compare runs/one runs/two runs/three --html=compared.html

Name a run by its folder, or by a checkpoint's folder to compare it up to that step. The first run is the base of
the others. Runs may still be training; the command trains nothing and takes no lock.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.paths import local
from mudd_core.base.regular_files import write_text
from mudd_core.base.show.chart import COLORS, Point, axis, means, text_chart
from mudd_core.base.show.json_text import json_text
from mudd_core.base.show.printable import visible
from mudd_core.base.show.terminal import Screen, screen
from mudd_core.base.storage import is_url
from mudd_core.base.surroundings import notes_stream, typed_program
from mudd_core.config.tool_arguments import ToolArguments
from mudd_core.run.report.page.curves import best_of
from mudd_core.run.report.page.elements import Section, preformatted, table, text
from mudd_core.run.report.page.line_chart import line_chart
from mudd_core.run.report.page.series import Mark, Series
from mudd_core.run.report.page.shell import page
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.run.store.saved_run import is_run
from mudd_core.tools.compare import Part
from mudd_core.tools.compare.compared import (
    ComparedRun,
    column_of,
    first_difference,
    short_names,
    steps_of,
)
from mudd_core.tools.compare.parts import parts_after_curves, parts_before_curves
from mudd_core.tools.compare.reading import read_run
from mudd_core.tools.compare.show import part_lines
from mudd_core.tools.compare.values import comparison_values

MOST_RUNS = len(COLORS)
PAGE = "compare.html"  # of --html alone
_MEETING = "*"

_FALL = 4  # times the distance from minimum to median; higher points are not shown
_Tables = Callable[[ComparedRun], Metrics]
# Title, column, unit, table, and whether the chart is as wide as the page.
_CHARTS: Sequence[tuple[str, str, str, _Tables, bool]] = (
    ("Training loss", "loss", "nats", lambda run: run.updates, True),
    ("Validation loss", "val_loss", "nats", lambda run: run.validations, False),
    ("Gradient norm", "grad_norm", "", lambda run: run.updates, False),
    ("Speed", "tokens_per_second", "tokens/s", lambda run: run.updates, False),
    ("Learning rate", "lr", "", lambda run: run.updates, False),
)


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    asked = _parser().options(_with_page(words))
    file = local(asked.html, "[compare] --html") if asked.html else None
    runs = read_runs(asked.runs)
    if asked.json:
        print(json_text("compare", comparison_values(runs)))
        return 0
    if file is None:
        print(visible(comparison_text(runs, screen())))
        return 0
    write_text(file, comparison_page(runs))
    print(f"page  {file}")
    return 0


def _with_page(words: Sequence[str]) -> list[str]:
    """Return the arguments with the default name after an --html that has no file after it."""
    after = [*words, "-"][1:]
    return [
        f"--html={PAGE}" if word == "--html" and (next_one.startswith("-") or is_run(next_one)) else word
        for word, next_one in zip(words, after, strict=True)
    ]


def read_runs(names: Sequence[str], command: str = "compare") -> list[ComparedRun]:
    """Read the runs and assign letters; raise UserError for fewer than two, too many, or a repeated run.

    command: for messages.
    """
    if len(names) < 2:
        got = f"got {names[0]} alone" if names else "got none"
        raise UserError(
            f"[{command}] RUN: expected the folders of two runs or more, {got}; type: "
            f"{' '.join(typed_program())} {command} {names[0] if names else 'RUN'} OTHER_RUN"
        )
    names = _without_others(names)
    if len(names) > MOST_RUNS:
        raise UserError(f"[{command}] RUN: expected at most {MOST_RUNS} runs, got {len(names)}")
    runs: list[ComparedRun] = []
    for letter, name in zip(string.ascii_uppercase, names, strict=False):
        run = read_run(letter, name, command)
        place = run.records.folder.path.resolve()
        for other in runs:
            if place == other.records.folder.path.resolve():
                raise UserError(
                    f"[{command}] {name}: expected another run, got {other.typed} again; name each once"
                )
        runs.append(run)
    return runs


def _without_others(names: Sequence[str]) -> Sequence[str]:
    """Return the names without files and folders that are not runs, as in runs/*, if two runs are left."""
    others = [name for name in names if not is_url(name) and Path(name).exists() and not is_run(name)]
    runs = [name for name in names if name not in others]
    if len(runs) < 2 or not others:
        return names
    print(f"note: not compared, because not the folder of a run: {', '.join(others)}", file=notes_stream())
    return runs


def _parser() -> ToolArguments:
    parser = ToolArguments("compare", __doc__ or "")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="folder of a run or of a checkpoint")
    page = f"write a page with all curves instead; default {PAGE}"
    parser.add_argument("--html", default="", metavar="FILE", help=page)
    parser.add_argument("--json", action="store_true", help="print JSON instead (docs/file-formats.md)")
    return parser


def comparison_text(runs: Sequence[ComparedRun], shown: Screen) -> str:
    """Return the whole report, without a line feed at its end."""
    lines: list[str] = []
    for part in parts_before_curves(runs):
        lines += [*part_lines(part, shown.width), ""]
    for title, name, tables in (
        ("training loss", "loss", [run.updates for run in runs]),
        ("validation loss", "val_loss", [run.validations for run in runs]),
    ):
        if chart := _chart(title, name, runs, tables, shown.width):
            lines += [chart, ""]
    for part in parts_after_curves(runs):
        lines += [*part_lines(part, shown.width), ""]
    return "\n".join(lines[:-1])


def _chart(title: str, name: str, runs: Sequence[ComparedRun], tables: Sequence[Metrics], width: int) -> str:
    """Draw the curves of a column over steps, or over tokens if runs have different tokens per step.

    Return an empty string unless every run has two values.
    """
    over_tokens = len({run.tokens_per_step for run in runs}) > 1
    logged = [
        _points(table, name, run.tokens_per_step if over_tokens else 1)
        for run, table in zip(runs, tables, strict=True)
    ]
    curves = [means(points, width) for points in logged]
    if any(len(points) < 2 for points in curves):
        return ""
    values = np.sort([up for points in curves for _, up in points])
    shown = values[values <= values[0] + _FALL * (np.median(values) - values[0] or 1.0)]
    label = "tokens" if over_tokens else "step"
    across = axis((x for points in logged for x, _ in points), label, whole=True, margin=0.0)
    legend = "   ".join(f"{run.letter} {name}" for run, name in zip(runs, short_names(runs), strict=True))
    return text_chart(
        f"{title}   {legend}   {_MEETING} several",
        across,
        axis(shown.tolist(), "nats"),
        [(run.letter, points) for run, points in zip(runs, curves, strict=True)],
        width=width,
        meeting=_MEETING,
    )


def _points(table: Metrics, name: str, scale: int) -> list[Point]:
    if name not in table:
        return []
    return [
        (float(step) * scale, float(value))
        for step, value in zip(table["step"], table[name], strict=True)
        if np.isfinite(value)
    ]


def comparison_page(runs: Sequence[ComparedRun]) -> str:
    """Return one self-contained HTML page: overlaid curves, and the tables of the terminal."""
    first, *others = (f"{run.letter} {name}" for run, name in zip(runs, short_names(runs), strict=True))
    before, after = parts_before_curves(runs), parts_after_curves(runs)
    sections = [_section(before[0]), _curves(runs), *map(_section, (*before[1:], *after))]
    return page(f"{first} compared with {', '.join(others)}", "", sections)


def _section(part: Part) -> Section:
    head, *rows = part.rows or [[]]
    body = table(rows, head, "stacked") if rows else ""
    for note in part.notes:
        body += preformatted(note.strip()) if note.startswith(" ") else text(note)
    return Section(part.title[:1].upper() + part.title[1:], body)


def _curves(runs: Sequence[ComparedRun]) -> Section:
    """Return the charts of all runs, and the charts of each loss minus the first run's loss."""
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
    charts.append(line_chart(f"Difference in training loss to {base.letter}", less, unit="nats", marks=marks))
    return Section("Curves", f'<div class="charts">{"".join(charts)}</div>')


def _less(base: ComparedRun, run: ComparedRun, name: str, color: int) -> Series:
    """Return the training loss of a run minus the base's loss, at the steps that both have logged."""
    common, left, right = np.intersect1d(steps_of(base.updates), steps_of(run.updates), return_indices=True)
    less = column_of(run.updates, "loss")[right] - column_of(base.updates, "loss")[left]
    return Series(name, run.records.places(common), less, color=color)


def _marks(runs: Sequence[ComparedRun]) -> list[Mark]:
    """Return marks at the first steps that differ."""
    base, *others = runs
    marks = []
    for run in others:
        step = first_difference(base, run).step
        if step is not None:
            places = base.records.places(np.array([step]))
            at = {name: float(place[0]) for name, place in places.items()}
            marks.append(Mark(at, f"step {step:,}: first difference of {base.letter} and {run.letter}"))
    return marks
