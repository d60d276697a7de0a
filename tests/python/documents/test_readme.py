"""README.md: its length, its links and the tests it names. test_reader.py runs its commands and its Python."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from places import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_readme_is_short_and_begins_with_what_a_newcomer_needs() -> None:
    lines = PAGES[0].read_text().splitlines()
    assert len(lines) <= 120
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
