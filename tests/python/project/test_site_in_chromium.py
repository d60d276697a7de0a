"""The built site: it requests nothing from the network, its search answers questions, its pages fit 360 pixels.

All tests need Sphinx; the tests of the search and the width also need a browser (chromium.py).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import built_site
import chromium
from places import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

QUESTIONS = ROOT / "tests" / "data" / "questions.txt"
UNSEEN = "# These questions were written after the search and change nothing in it."
FIRST, MISSED = 3, 2  # pages that are tested; how many of 20 questions may have no answer there

browser = chromium.browser


def questions(text: str) -> list[tuple[str, list[str]]]:
    """Return each question with the pages that answer it."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(question, pages.split()) for question, _, pages in (line.partition(" | ") for line in lines)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_site.build(tmp_path_factory.mktemp("built"))


@pytest.fixture
def page(browser: Browser, site: Path) -> Page:
    """Yield a browser page of a telephone's width, without a network."""
    context = browser.new_context(viewport={"width": 360, "height": 800}, offline=True)
    context.set_default_timeout(20_000)
    page = context.new_page()
    yield page
    context.close()


def test_the_pages_request_nothing_from_the_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40 and (site / "_static" / "search_sections.js").stat().st_size > 100_000
    for file in pages:
        text = file.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|link|iframe|source|video|audio|object)\b[^>]*>", text)
        remote = [tag for tag in loaded if re.search(r"""(?:src|href|data)=["']?(?:https?:)?//""", tag)]
        assert remote == [], file
    for file in (*site.rglob("*.css"), *site.rglob("*.svg")):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"""(?:@import|url\()\s*["']?(?:https?:)?//""", text), file


def test_the_search_has_the_right_page_among_its_first_three(site: Path, page: Page) -> None:
    page.goto((site / "search.html").as_uri())
    text = QUESTIONS.read_text(encoding="utf-8")
    seen, mark, unseen = text.partition(UNSEEN)
    for part in filter(None, (seen, mark and unseen)):
        asked = questions(part)
        assert len(asked) == 20
        missed = []
        for question, right in asked:
            assert all((site / f"{name}.html").is_file() for name in right), question
            found = page.evaluate("question => window.searchPages(question)", question)[:FIRST]
            if not set(found) & set(right):
                missed.append((question, found))
        assert len(missed) <= MISSED, missed


def test_a_reader_types_a_question_and_opens_the_section(site: Path, page: Page) -> None:
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto((site / "search.html").as_uri() + "?q=exit+code+75")
    results = page.locator("#search-results li")
    assert results.count() > 2 and results.first.locator("mark").count() > 0
    page.locator("#search-words").fill("<img src=x onerror=alert(1)> zzzzqq")
    assert page.locator("#search-results img").count() == 0
    page.locator("#search-words").fill("zzzzqq")
    assert page.locator("#search-state").inner_text() == "no page has these words"
    page.locator("#search-words").fill("mixed weights of a MUDDFormer")
    results.first.locator("a").click()
    page.wait_for_url(re.compile(r"/(?!search)[\w/.-]+\.html"))
    assert faults == []


# Elements that extend beyond the right edge of the screen and are not in a scrolling box.
WIDE = """() => [...document.querySelectorAll("article *")].filter((one) => {
  const box = one.getBoundingClientRect();
  if (!box.width || box.right <= innerWidth + 1) return false;
  for (let at = one; at.tagName !== "ARTICLE"; at = at.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(at).overflowX)) return false;
  return true;
}).map((one) => one.outerHTML.slice(0, 100))"""


# Blocks of Python with lines that are wider than the block.
CUT = """() => [...document.querySelectorAll(".highlight-python pre")]
  .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent.slice(0, 100))"""


def test_pages_fit_a_telephone(site: Path, page: Page) -> None:
    for file in sorted(site.rglob("*.html")):
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, file.name
        assert page.evaluate(WIDE) == [], file.name
        assert page.evaluate(CUT) == [], file.name
    wide = "<div style='width: 600px'>wide</div>"
    page.evaluate("html => document.querySelector('article').insertAdjacentHTML('beforeend', html)", wide)
    assert page.evaluate(WIDE) != []
