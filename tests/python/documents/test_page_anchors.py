"""Links from pages to a section lead to a heading with that name."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from places import ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of the headings, spelled as on GitHub."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return frozenset(
        re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in HEADING.findall(text)
    )


def dead(page: Path, text: str) -> list[str]:
    """Return the links of a page's text whose section is missing."""
    found = []
    for target, anchor in LINK.findall(text):
        aim = (page.parent / target).resolve() if target else page
        if "://" not in target and aim.suffix == ".md" and aim.is_file() and anchor not in anchors(aim):
            found.append(f"{target}#{anchor}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_to_sections_lead_to_headings(page: Path) -> None:
    assert dead(page, page.read_text(encoding="utf-8")) == []


def test_a_link_to_a_missing_section_is_found() -> None:
    page = ROOT / "docs" / "data.md"
    assert dead(page, "[a](running/options.md#validation) [b](running/options.md#renamed)") == [
        "running/options.md#renamed"
    ]


def open_spans(text: str) -> list[str]:
    """Return the paragraphs with an odd number of backticks, or with a code span that ends on a later line."""
    paragraphs = re.split(r"\n\s*\n", FENCE.sub("", text))
    return [
        paragraph
        for paragraph in paragraphs
        if paragraph.count("`") % 2 or re.search(r"^\s*`[.,;)](?:\s|$)", paragraph, re.MULTILINE)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_code_span_is_closed(page: Path) -> None:
    assert open_spans(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("text", ["write `a and b.", "text `a\n` and `b\n`. next"])
def test_a_code_span_that_is_open_is_found(text: str) -> None:
    assert open_spans(f"A `whole` one.\n\n{text}\n") == [f"{text}\n"]
