"""docs/decisions: the form of each entry, and every citation of a page, an anchor or a title."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from places import ROOT

FOLDER = ROOT / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("*.md"))
AREAS = [page for page in PAGES if page.name != "README.md"]
CITING = ("cpp", "python", "tests", "bench", "configs", "docs", "examples", "notebooks", "scripts")
SUFFIXES = {".h", ".cc", ".inc", ".py", ".md", ".txt", ".cmake", ".sh", ".ipynb"}
RECORDS = ROOT / "bench" / "results"  # written once
MD = ".md"  # without the names of missing pages, which test_references.py would find
LONGEST_ENTRY = 8  # lines after the title
WHEN = re.compile(r"2026-\d\d-\d\d,\s[0-9a-f]{8}\b")
CITATION = re.compile(r'decisions/([\w-]+\.md)(?:#([\w-]+)|,\s*(?:(?://|#)\s*)?"([^"]+)")?')


def titles(page: Path) -> list[str]:
    return re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of the headings, spelled as on GitHub."""
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles(page))


def dead(text: str) -> Iterator[str]:
    """Yield the citations of decisions that do not exist."""
    if re.search(r"\bdecisions\.md\b", text):
        yield "the page is a folder now: docs/decisions/"
    for name, anchor, title in CITATION.findall(text):
        page = FOLDER / name
        if page not in PAGES:
            yield f"{name}: no such page"
        elif anchor and anchor not in anchors(page):
            yield f"{name}#{anchor}: no such anchor"
        elif title and title not in titles(page):
            yield f'{name}, "{title}": no such entry'


def sources() -> Iterator[Path]:
    yield from ROOT.glob("*.md")
    for folder in CITING:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in SUFFIXES and path.is_file() and RECORDS not in path.parents:
                yield path


def test_every_citation_of_a_decision_leads_to_it() -> None:
    cited, wrong = 0, []
    for path in sources():
        if path != Path(__file__):
            text = path.read_text(encoding="utf-8")
            cited += len(CITATION.findall(text))
            wrong += [f"{path.relative_to(ROOT)}: {fault}" for fault in dead(text)]
    assert not wrong, "\n".join(wrong)
    assert cited > 5


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"see docs/decisions{MD}", "the page is a folder"),
        (f"(docs/decisions/speed{MD})", "no such page"),
        ("[why](decisions/own.md#an-old-entry)", "no such anchor"),
        ('// (docs/decisions/own.md, "An old entry").', "no such entry"),
        ('// (docs/decisions/own.md,\n// "An old entry").', "no such entry"),
    ],
)
def test_a_dead_citation_is_found(text: str, fault: str) -> None:
    assert [fault in found for found in dead(text)] == [True]
    assert not list(
        dead('docs/decisions/own.md, "py::class_ is wrapped"; decisions/own.md#pyclass_-is-wrapped')
    )


@pytest.mark.parametrize("page", AREAS, ids=lambda page: page.name)
def test_an_entry_is_short_and_says_when(page: Path) -> None:
    for section in page.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        lines = body.strip().splitlines()
        rows = [line for line in lines if line.startswith("|") and not line.startswith("| ---")]
        if title == "Further decisions":
            decisions = [line for line in rows if line.count(" | ") == 2]
            assert all(WHEN.search(line) for line in decisions[1:]), title
        elif title != "Tried and dropped":
            assert len(lines) <= LONGEST_ENTRY and WHEN.search(body), title


def test_the_index_lists_every_page() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[[\w.]+\]\(([\w.]+)\)", index, re.MULTILINE)
    assert sorted(listed) == [page.name for page in AREAS]
