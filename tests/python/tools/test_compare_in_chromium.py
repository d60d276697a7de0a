"""The page of a comparison in Chromium: values of all runs at the pointer, no request, no error, 360 pixels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import chromium
from mudd_core.tools.compare.command import comparison_page
from mudd_core.tools.compare.reading import read_run
from page_runs import update, validation, write_run

browser = chromium.browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the page of three runs: the second's loss differs from step 600 on, the third logs every 20 steps."""
    folder = tmp_path_factory.mktemp("compared")
    for name, every in (("first", 10), ("second", 10), ("third", 20)):
        rows = []
        for step in range(every, 1001, every):
            other = name == "second" and step >= 600
            rows.append(update(step, loss=3.0 - step / 1000 + (0.25 if other else 0.0)))
            if step % 500 == 0:
                rows.append(validation(step, 3.5 - step / 1000))
        write_run(folder / name, rows, (), "train.steps=1000", f"train.log_every={every}")
    names = ("first", "second", "third")
    runs = [read_run(letter, str(folder / name)) for letter, name in zip("ABC", names, strict=True)]
    file = folder / "compared.html"
    file.write_text(comparison_page(runs), encoding="utf-8")
    return file


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_the_pointer_shows_the_values_of_all_runs(
    browser: Browser, page_file: Path, width: int, scheme: str
) -> None:
    with chromium.opened(browser, page_file, width, scheme) as (page, _):
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert chromium.clipped(page) == []
        figure = page.locator("figure").first
        assert figure.locator("h3").inner_text() == "Training loss nats"
        plot = figure.locator(".plot")
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 0.999 * box["width"], box["y"] + box["height"] / 2)
        tip = page.locator(".tip:visible").inner_text()
        for name, value in (("A first", "2"), ("B second", "2.25"), ("C third", "2")):
            assert re.search(rf"{name}\s+{re.escape(value)} nats", tip), tip
        headings = page.locator("h2").all_inner_texts()
        assert "First difference of A and B: step 600" in headings
        assert "First difference of A and C: none up to the last common step, 1,000" in headings
