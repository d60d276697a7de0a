"""Compares runs: what was asked for and differs, their losses and curves, the first step whose numbers differ.

    python3 launch.py compare runs/one runs/two
    python3 launch.py compare runs/one runs/two runs/three --html=compared.html

A run is its folder, or the folder of a checkpoint: then it is compared up to that step. The first run is the base of
the others. Runs that train may be compared; nothing is trained and no lock is taken.
"""

from __future__ import annotations

import string
from collections.abc import Sequence

from mudd_core.base.errors import UserError
from mudd_core.base.paths import local
from mudd_core.base.regular_files import write_text
from mudd_core.base.show.chart import COLORS
from mudd_core.base.show.printable import visible
from mudd_core.base.show.terminal import screen
from mudd_core.base.surroundings import typed_program
from mudd_core.config.tool_arguments import ToolArguments
from mudd_core.tools.compare.compared import ComparedRun, read_run
from mudd_core.tools.compare.terminal import comparison_text

MOST_RUNS = len(COLORS)


def main(words: Sequence[str]) -> int:
    """The command; returns the exit code."""
    asked = _parser().options(words)
    file = local(asked.html, "[compare] --html") if asked.html else None
    runs = read_runs(asked.runs)
    if file is None:
        print(visible(comparison_text(runs, screen())))
        return 0
    from mudd_core.tools.compare.page import comparison_page

    write_text(file, comparison_page(runs))
    print(f"page  {file}")
    return 0


def read_runs(names: Sequence[str]) -> list[ComparedRun]:
    """The runs of a command under letters; UserError for fewer than two, for too many, for one that is named twice."""
    if len(names) < 2:
        got = f"got {names[0]} alone" if names else "got none"
        raise UserError(
            f"[compare] RUN: expected the folders of two runs or more, {got}; type: "
            f"{' '.join(typed_program())} compare {names[0] if names else 'RUN'} OTHER_RUN"
        )
    if len(names) > MOST_RUNS:
        raise UserError(f"[compare] RUN: expected at most {MOST_RUNS} runs, got {len(names)}")
    runs: list[ComparedRun] = []
    for letter, name in zip(string.ascii_uppercase, names, strict=False):
        run = read_run(letter, name)
        place = run.records.folder.path.resolve()
        for other in runs:
            if place == other.records.folder.path.resolve():
                raise UserError(
                    f"[compare] {name}: expected another run, got {other.typed} again; name each once"
                )
        runs.append(run)
    return runs


def _parser() -> ToolArguments:
    parser = ToolArguments("compare", __doc__ or "")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="folder of a run or of a checkpoint")
    parser.add_argument("--html", default="", metavar="FILE", help="write a page with all curves instead")
    return parser
