"""Train one run for each combination of values of config fields, and compare the runs.

    python3 launch.py sweep --config=tiny.py optim.lr=1e-3,3e-3 model.d_model=64,128
    python3 launch.py sweep --config=tiny.py optim.lr=1e-3,3e-3 train.seed=0,1 --jobs=2 --out=two
    python3 launch.py sweep --config=tiny.py optim.lr=1e-3,3e-3 --plan

A field with several values, divided by commas, is an axis of the grid; a field of type string is set several times
instead. Each combination is a run in a folder below --out, which other commands open like any run. On Ctrl-C or
SIGTERM it saves the runs and exits with code 75; the same command resumes. At the end it prints a table, best
validation loss first, and writes sweep.html with the curves of the best runs.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.paths import local, output_folder
from mudd_core.base.show.printable import visible
from mudd_core.base.surroundings import typed_program
from mudd_core.cli.job import program
from mudd_core.cli.sweep.grid import Cell, Grid, grid_of
from mudd_core.cli.sweep.processes import STOPPED, Processes
from mudd_core.cli.sweep.table import result_table, write_page
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.run.store.run_folder import RunFolder

PAGE = "sweep.html"


@dataclass(frozen=True)
class Asked:
    """The parsed arguments. ranks: the number of ranks of each run; 0 for one process without mpirun."""

    config: str
    grid: Grid
    out: Path
    jobs: int
    ranks: int
    plan: bool

    def folder(self, cell: Cell) -> RunFolder:
        """Return the work directory of a cell."""
        return RunFolder(self.out / cell.name)

    def arguments(self, cell: Cell) -> list[str]:
        """Return the arguments of a cell's training."""
        ranks = [f"--ranks={self.ranks}"] if self.ranks else []
        return ["train", f"--config={self.config}", f"--workdir={self.folder(cell)}", *ranks, *cell.arguments]


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    asked = _asked(words)
    cells = asked.grid.cells
    if asked.plan:
        print(f"{len(cells)} runs; the memory and time of one: type its command with --plan")
        for cell in cells:
            print(visible(shlex.join([*typed_program(), *asked.arguments(cell)])))
        return 0
    processes = Processes(asked.jobs)
    output_folder(asked.out, "[sweep] --out")
    codes = dict[int, int]()

    def starts(number: int) -> None:
        print(f"run {number + 1} of {len(cells)}: {cells[number].name}", flush=True)

    def ended(number: int, code: int, messages: str) -> None:
        codes[number] = code
        if messages and code not in (0, STOPPED):
            print(visible(f"run {number + 1} of {len(cells)}: exit code {code}\n{messages}"), flush=True)

    lines = [[*program(), *asked.arguments(cell)] for cell in cells]
    if not processes.run(lines, starts, ended):
        print(f"stopped; {_ended(codes)} of {len(cells)} runs have ended; the same command resumes")
        return STOPPED
    failed = {cells[number].name: code for number, code in sorted(codes.items()) if code}
    folders = [asked.folder(cell) for cell in cells]
    print("\n".join(["", *map(visible, result_table(asked.grid, folders, failed))]))
    if write_page(folders, asked.out / PAGE):
        print(f"page  {asked.out / PAGE}")
    return next(iter(failed.values()), 0)


def _ended(codes: dict[int, int]) -> int:
    return sum(code != STOPPED for code in codes.values())


def _asked(words: Sequence[str]) -> Asked:
    parser = ToolArguments("sweep", __doc__ or "", fields="optim.lr=1e-3,3e-3")
    parser.add_argument("--config", metavar="FILE", help="config file, as for training")
    parser.add_argument("--out", metavar="DIR", help="folder of the runs; default runs/sweep-<config name>")
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=whole_number(1),
        default=1,
        help="runs at the same time, each on its own cores",
    )
    parser.add_argument("--ranks", metavar="N", type=whole_number(1), default=0, help="ranks of each run")
    parser.add_argument("--plan", action="store_true", help="print the commands of the runs; train nothing")
    options, overrides = parser.read(words)
    if not options.config:
        parser.require("--config")
    out = local(options.out or f"runs/sweep-{Path(options.config).stem}", "[sweep] --out")
    return Asked(
        options.config, grid_of(options.config, overrides), out, options.jobs, options.ranks, options.plan
    )
