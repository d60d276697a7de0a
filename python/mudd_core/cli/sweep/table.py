"""The result of a sweep: a table of its runs, best validation loss first, and a page with the curves of the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from mudd_core.base.regular_files import write_text
from mudd_core.base.show.tables import text_table
from mudd_core.cli.sweep.grid import Grid
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.compare.command import MOST_RUNS, comparison_page, read_runs
from mudd_core.tools.compare.compared import ComparedRun, column_of
from mudd_core.tools.compare.reading import read_run

_NONE = "-"


def result_table(grid: Grid, folders: Sequence[RunFolder], failed: Mapping[str, int]) -> list[str]:
    """Return the lines of the table. folders: one for each cell. failed: exit codes by the name of the cell."""
    rows = []
    for cell, folder in zip(grid.cells, folders, strict=True):
        run = _run(folder)
        code = failed.get(cell.name, 0)
        state = f"exit code {code}" if code else "" if run is None else run.state
        rows.append((_best(run), [*cell.values, *_losses(run), state]))
    head = [*grid.fields, "validation loss", "bits per byte", "minutes", "state"]
    ordered = [cells for _, cells in sorted(rows, key=lambda row: row[0])]
    return text_table([head, *ordered], left=(len(head) - 1,))


def write_page(folders: Sequence[RunFolder], file: Path) -> bool:
    """Write a page with the curves of the runs with the best validation losses; return False for fewer than two."""
    found = [(_best(run), str(folder)) for folder in folders if (run := _run(folder)) is not None]
    best = [name for _, name in sorted(found)[:MOST_RUNS]]
    if len(best) < 2:
        return False
    write_text(file, comparison_page(read_runs(best)))
    return True


def _run(folder: RunFolder) -> ComparedRun | None:
    """Return the records of a run; None if it has not started."""
    return read_run("A", str(folder)) if folder.holds_run else None


def _best(run: ComparedRun | None) -> float:
    """Return the best validation loss in nats; infinity without one."""
    best = None if run is None else run.records.best_validation
    return math.inf if best is None or not math.isfinite(best[0]) else best[0]


def _losses(run: ComparedRun | None) -> list[str]:
    """Return the best validation loss, its bits per byte and the minutes of training as text."""
    if run is None or not math.isfinite(_best(run)):
        return [_NONE] * 3
    bits = column_of(run.validations, "val_bits_per_byte")
    seconds = run.records.summary.get("seconds")
    return [
        f"{_best(run):.4f}",
        f"{min(bits):.4f}" if len(bits) and math.isfinite(min(bits)) else _NONE,
        f"{seconds / 60:.1f}" if isinstance(seconds, float | int) else _NONE,
    ]
