"""References from comments, docstrings and pages to sections of pages in this repository: every one resolves.

Forms: `docs/maths/mup.md, 2.1` (more numbers after a comma, `and` or `to`), `[mup.md](mup.md), 2.1` in a page, a page
alone, and `contracts 3`, short for docs/contracts.md, number 3. test_readme.py checks the links and named tests of the
pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from places import ROOT

FOLDERS = ("cpp", "python", "tests", "bench", "configs", "docs", "scripts")
SUFFIXES = {".h", ".cc", ".inc", ".py", ".pyi", ".md", ".txt", ".cmake", ".sh"}
FILES = ("README.md", "CHANGELOG.md", "CMakeLists.txt", "launch.py", "run")
RECORDS = (ROOT / "bench" / "results", ROOT / "tests" / "goldens" / "losses")  # written once, never changed

NUMBERS = r"(\d+(?:\.\d+)?(?:(?:, | and | to )\d+(?:\.\d+)?)*)"
PAGE = re.compile(r"(?<!--out )(?<![\w./<>*-])((?:[\w.-]+/)*[\w-]+\.md)\b(?:\)?, " + NUMBERS + ")?")
CONTRACTS = re.compile(r"\bcontracts " + NUMBERS)
HEADING = re.compile(r"^#{2,3} (\d+(?:\.\d+)?)\.? ", re.MULTILINE)
ITEM = re.compile(r"^(\d+)\. \*\*", re.MULTILINE)  # an item of docs/contracts.md
# Folders and a page outside the repository, and sections by letter, as in those pages.
OUTSIDE = re.compile(r"\b(?:spec/\w*|shared/\w*|design\.md|spec (?:sections? \d|[a-z]\.\d))")


def sources() -> Iterator[Path]:
    """Yield every text file that may cite a page."""
    yield from (ROOT / name for name in FILES)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            kept = path.suffix in SUFFIXES and not any(record in path.parents for record in RECORDS)
            if kept and path.is_file() and path != Path(__file__):
                yield path


def on_one_line(text: str) -> str:
    """Return the text without line ends, and without comment marks at the start of lines."""
    return re.sub(r"\s*\n\s*(?://+ |# )?\s*", " ", text)


@cache
def sections(page: Path) -> frozenset[str]:
    """Return the numbers of a page's headings, and of the items in docs/contracts.md."""
    text = page.read_text(encoding="utf-8")
    return frozenset(HEADING.findall(text)) | frozenset(ITEM.findall(text))


def faults(text: str, folder: Path, root: Path = ROOT) -> list[str]:
    """Return the references that do not resolve. text: of a file in `folder`."""
    text, found = on_one_line(text), []
    for name, numbers in PAGE.findall(text):
        page = next((base / name for base in (root, root / "docs", folder) if (base / name).is_file()), None)
        if page is None:
            found.append(f"{name}: no such page")
        else:
            found += missing(page, name, numbers)
    for numbers in CONTRACTS.findall(text):
        found += missing(root / "docs" / "contracts.md", "contracts", numbers)
    return found + [f"{hit}: not in the repository" for hit in OUTSIDE.findall(text)]


def missing(page: Path, name: str, numbers: str) -> list[str]:
    asked = re.findall(r"\d+(?:\.\d+)?", numbers)
    return [f"{name}, {number}: no such section" for number in asked if number not in sections(page)]


def test_every_reference_resolves() -> None:
    cited = 0
    wrong = []
    for path in sources():
        text = path.read_text(encoding="utf-8")
        cited += len(CONTRACTS.findall(on_one_line(text))) + text.count("docs/maths/")
        wrong += [f"{path.relative_to(ROOT)}: {fault}" for fault in faults(text, path.parent)]
    assert not wrong, "\n".join(wrong)
    assert cited > 80  # comments cite pages, and the patterns find these references


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("// See docs/maths/mup.md, 2.1 and 9.9.", "docs/maths/mup.md, 9.9: no such section"),
        ("# The table (docs/maths/mup.md,\n# 7)", "docs/maths/mup.md, 7: no such section"),
        ("as in [mup.md](maths/mup.md), 2.8", "maths/mup.md, 2.8: no such section"),
        ("docs/maths/hyena.md, 1", "docs/maths/hyena.md: no such page"),
        ("sums (contracts 2, 3 and 99)", "contracts, 99: no such section"),
        ("the formula of spec/mup.md", "spec/mup.md: no such page"),
        ("forward as spec a.2 reads", "spec a.2: not in the repository"),
        ("design.md, decision 1", "design.md: no such page"),
    ],
)
def test_a_wrong_reference_is_found(text: str, fault: str) -> None:
    assert fault in faults(text, ROOT / "docs")
    assert not faults("docs/maths/mup.md, 2.1 to 2.3; contracts 2, 7 and 24; docs/data.md, 1", ROOT / "docs")


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "maths").glob("*.md")), ids=lambda page: page.name)
def test_the_code_that_a_page_of_maths_names_exists(page: Path) -> None:
    head = page.read_text(encoding="utf-8").split("Code: ")[1].split("\n\n")[0]
    named = re.findall(r"`([^`]+)`", head)
    assert named and sections(page)
    for name in named:
        places = (folder.rglob(name) for folder in (ROOT / "python/mudd_core", ROOT / "cpp/mudd"))
        assert any(next(found, None) for found in places), name
