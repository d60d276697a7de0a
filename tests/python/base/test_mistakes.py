"""The most common mistakes: one line each with the error and the fix, compared with a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from places import ROOT

KEPT = (ROOT / "tests" / "data" / "api" / "mistakes.txt").read_text(encoding="utf-8")


def test_every_mistake_has_its_line(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tests" / "mistakes.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    assert (
        done.stdout.splitlines() == KEPT.splitlines()
    )  # if this fails: python tests/mistakes.py --write, and read the new lines
    assert list(tmp_path.iterdir()) == []


def test_the_lines_are_short_and_none_is_of_another_kind() -> None:
    entries = [entry.splitlines() for entry in KEPT.strip().split("\n\n")]
    assert len(entries) >= 30 and len({entry[0] for entry in entries}) == len(entries)
    kinds = (
        "TypeError",
        "ValueError",
        "KeyError",
        "AttributeError",
        "UserError",
        "dataclasses.FrozenInstanceError",
    )
    for entry in entries:
        assert len(entry) == 2 and entry[0].startswith(">>> "), entry
        assert entry[1].partition(":")[0] in kinds and len(entry[1]) < 240, entry
