"""A stopped soak of the levels continues from its log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import loss_goldens
import soak_levels
from level_results import CASES
from places import TESTS
from soak_log import END, Log

LEFT = "add"  # the op that the stopped soak has not compared


def test_a_stopped_soak_compares_what_its_log_has_not(tmp_path: Path) -> None:
    kept = [soak_levels.head(""), "commit 0123456"]
    kept += [f"{case}: 2 cases, equal, 1 s" for case in CASES if case != LEFT]
    kept += [f"families at {level}: {soak_levels.COMMITTED}" for level in loss_goldens.levels()]
    log = tmp_path / "soak.log"
    log.write_text("\n".join([*kept, f"{LEFT}: 2 cases, DIFFER", soak_levels.MODELS]) + "\n")
    command = [sys.executable, str(TESTS / "soak_levels.py"), "2", f"--log={log}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    commit, op, end = log.read_text().splitlines()[len(kept) + 2 :]
    assert commit.startswith("commit ") and op.startswith(f"{LEFT}: 2 cases, equal")
    assert end.startswith(END) and end.endswith("all levels agree")


@pytest.mark.parametrize("lines", ["another CPU\n", f"head\n{END}3 s\n"])
def test_a_log_of_something_else_or_with_an_end_is_kept(tmp_path: Path, lines: str) -> None:
    log = tmp_path / "soak.log"
    log.write_text(lines)
    with pytest.raises(SystemExit, match="a kept log is not overwritten"):
        Log(log, "head")
    assert log.read_text() == lines
