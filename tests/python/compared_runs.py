"""The `compare` command on runs, and the same results computed by NumPy from the logs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from launched import called
from mudd_core.base.types import Float64

Row = dict[str, Any]


def compare(folder: Path, *names: str) -> str:
    """Return the output of the command for runs/<name>, or for other paths."""
    done = called(folder, "compare", *(name if "/" in name else f"runs/{name}" for name in names))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert all(line.isascii() for line in done.stdout.splitlines())
    return done.stdout


def rows(folder: Path, name: str) -> list[Row]:
    lines = (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def column(folder: Path, name: str, key: str) -> Float64:
    """Return a column of the updates of runs/<name>; NaN for null."""
    values = [row[key] for row in rows(folder, name) if "loss" in row]
    return np.array([np.nan if value is None else value for value in values], np.float64)


def first_by_numpy(folder: Path, one: str, two: str) -> int | None:
    """Return the first step at which loss or gradient norm differ in any bit; the runs log the same steps."""
    unequal = np.zeros(len(column(folder, one, "step")), bool)
    for key in ("loss", "grad_norm"):
        left, right = (column(folder, name, key).view(np.uint64) for name in (one, two))
        unequal |= left != right
    places = np.flatnonzero(unequal)
    return int(column(folder, one, "step")[places[0]]) if len(places) else None


def first_printed(printed: str) -> int | None:
    """Return the step in the line `first difference of A and B`; None if all common steps are equal."""
    (line,) = (line for line in printed.splitlines() if line.startswith("first difference of A and B"))
    found = re.fullmatch(r".*: step ([\d,]+)", line)
    assert found is not None or "none up to the last common step" in line, line
    return int(found[1].replace(",", "")) if found else None


def changed(folder: Path, change: Callable[[list[Row]], None], name: str = "changed") -> None:
    """Copy runs/base with changed log entries to runs/<name>."""
    shutil.rmtree(folder / "runs" / name, ignore_errors=True)
    shutil.copytree(folder / "runs" / "base", folder / "runs" / name)
    found = rows(folder, "base")
    change(found)
    text = "".join(json.dumps(row) + "\n" for row in found)
    (folder / "runs" / name / "metrics.jsonl").write_text(text)
