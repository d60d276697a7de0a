"""The README: its Python runs as it stands, its links and the tests it names exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from places import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_python_of_the_readme_runs_as_it_is_typed(tmp_path: Path) -> None:
    """In a fresh process, with the config and the text that a newcomer gets."""
    blocks = re.findall(r"```python\n(.*?)```", PAGES[0].read_text(), re.DOTALL)
    (tmp_path / "first.py").write_text("\n".join(blocks))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "first.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0 and "step 50/50" in done.stderr, done.stderr
    assert 2 < float(done.stdout.splitlines()[0]) < 4, "bits per byte after 50 steps"
    assert (tmp_path / "runs" / "first" / "metrics.jsonl").is_file()


def test_the_readme_is_short_and_begins_with_what_a_newcomer_needs() -> None:
    lines = PAGES[0].read_text().splitlines()
    assert len(lines) <= 170
    first = "\n".join(lines[:40])
    for part in ("Linux, x86-64", "./run train", "tok/s  ETA", "PyTorch", "data.path=my_text"):
        assert part in first, part


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_are_named_exist(page: Path) -> None:
    known = {path.name for path in (ROOT / "tests").rglob("*") if path.is_file()}
    for name in re.findall(r"`(?:tests/\w+/)?(\w+\.(?:py|cc))", page.read_text()):
        if name.startswith("test_") or name.endswith("_test.cc"):
            assert name in known, name
