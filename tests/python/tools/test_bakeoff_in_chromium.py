"""The page of a bake-off in Chromium: values at the pointer, no request, no error, 360 pixels, both color schemes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import chromium
from bakeoff_results import result_of
from mudd_core.tools.bakeoff.result_page import page as page_of

browser = chromium.browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize(("scheme", "paper"), [("light", "rgb(251, 251, 250)"), ("dark", "rgb(20, 23, 26)")])
def test_the_page_fits_and_shows_the_values_over_each_cost(
    browser: Browser, width: int, scheme: str, paper: str, tmp_path: Path
) -> None:
    long_name = f"{HOSTILE}{'x' * 60}"
    models = {"transformer_pp": (None, 0.05), "muddformer": (-0.125, 0.05), long_name: (0.25, 0.05)}
    file = tmp_path / "result.html"
    file.write_text(page_of(result_of(models, "3 families at equal FLOPs")), encoding="utf-8")
    with chromium.opened(browser, file, width, scheme) as (page, _):
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert chromium.clipped(page) == []
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
        assert page.locator(".facts dt").all_inner_texts() == list(models)
        plot = page.locator(".plot")
        for name, last in (
            ("tokens", "102,357 tokens"),
            ("FLOPs", "9,000,000,000 FLOPs"),
            ("seconds", "5 s"),
        ):
            page.locator(f".switch label:has-text('{name}')").click()
            plot.scroll_into_view_if_needed()
            box = plot.bounding_box()
            assert box is not None
            page.mouse.move(box["x"] + 0.999 * box["width"], box["y"] + box["height"] / 2)
            tip = page.locator(".tip:visible").inner_text()
            assert last in tip and re.search(r"muddformer\s+1\.8750 ± 0\.0500 bits per byte", tip), tip
            assert plot.locator(".view:visible .band").count() == 3
