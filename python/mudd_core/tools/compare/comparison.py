"""mc.compare: differing settings, losses and curves of runs, and the first step with different values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from mudd_core.base.arguments.known import known_arguments
from mudd_core.base.errors import UserError
from mudd_core.base.paths import local
from mudd_core.base.python_arguments import python_errors
from mudd_core.base.regular_files import write_text
from mudd_core.base.show.printable import escaped
from mudd_core.base.show.tables import html_table
from mudd_core.base.show.terminal import screen
from mudd_core.run.opened.run import Run, folder_named_by
from mudd_core.tools.compare import Part
from mudd_core.tools.compare.command import comparison_page, comparison_text, read_runs
from mudd_core.tools.compare.compared import ComparedRun, first_difference
from mudd_core.tools.compare.parts import parts_after_curves, parts_before_curves


class Comparison:
    """The runs of mc.compare and their differences; it prints as the command `compare` does.

    A notebook shows tables. `comparison.save("compared.html")` writes the page with all curves.
    """

    def __init__(self, runs: Sequence[ComparedRun]) -> None:
        self._runs = runs

    @property
    def runs(self) -> Mapping[str, Path]:
        """The folders of the runs by letter; the first is the base of the others."""
        return {run.letter: run.records.folder.path for run in self._runs}

    @cached_property
    def first_differences(self) -> Mapping[str, int | None]:
        """The first step at which a run differs from the base, by letter; None if all common steps are equal."""
        base, *others = self._runs
        return {run.letter: first_difference(base, run).step for run in others}

    def save(self, file: str | Path) -> None:
        """Write one HTML page with all curves and tables. Raise UserError for an impossible path."""
        write_text(local(file, "[compare] file"), comparison_page(self._runs))

    def __repr__(self) -> str:
        return comparison_text(self._runs, screen())

    def _repr_html_(self) -> str:
        return "\n".join(
            _html(part) for part in (*parts_before_curves(self._runs), *parts_after_curves(self._runs))
        )


def _html(part: Part) -> str:
    head, *rows = part.rows or [[]]
    title = part.title[:1].upper() + part.title[1:]
    notes = "".join(f"<div>{escaped(note)}</div>" for note in part.notes)
    return (
        html_table(rows, title=title, head=head) + notes
        if rows
        else f"<div><b>{escaped(title)}</b></div>{notes}"
    )


@known_arguments("compare")
def compare(*runs: str | Path | Run) -> Comparison:
    """Compare settings, losses, speed and first differences of runs: `mc.compare("runs/a", "runs/b")`.

    runs: two or more folders of runs or of checkpoints (a run up to that step), URLs, or results of mc.load_run.
    The first is the reference for the others. Runs may still train: no lock is taken and nothing is written.
    Raise UserError for fewer than two runs, a repeated run, and a folder without a run.
    """
    names = [_folder(run) for run in runs]
    if len(names) < 2:
        got = f'"{names[0]}" alone' if names else "none"
        first = names[0] if names else "runs/one"
        raise UserError(
            f'[compare] runs: expected the folders of two runs or more, got {got}; type mc.compare("{first}", '
            '"OTHER_RUN")'
        )
    with python_errors({"[workdir]": "[compare] runs:"}):
        return Comparison(read_runs(names))


def _folder(run: str | Path | Run) -> str:
    if isinstance(run, Run):
        return str(folder_named_by(run))
    if not isinstance(run, str | Path):
        hint = "; type mc.compare(*runs) for a list" if isinstance(run, list | tuple) else ""
        raise TypeError(f"[compare] runs: expected the folders of runs, got {run!r}{hint}")
    return str(run)
