"""The page of a run in Chromium: values at the pointer, no request, no error, 360 pixels, both color schemes.

The tests are skipped if there is no browser (chromium.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import chromium
from mudd_core.run.report.page.elements import Section
from mudd_core.run.report.page.heat_map import heat_map
from mudd_core.run.report.page.run_page import run_page, write_page
from mudd_core.run.report.page.shell import page as page_of
from page_runs import records_of, update, validation, write_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HOSTILE = "<img src=x onerror=alert(1)>"


browser = chromium.browser


@dataclass
class Opened:
    """A page in the browser, with its forbidden actions: errors and requests."""

    page: Page
    file: Path
    faults: list[str]

    def tip(self) -> str:
        return self.page.locator(".tip:visible").inner_text()

    def hover(self, title: str, across: float = 0.5) -> str:
        """Return the text at the pointer over the chart with this title. across: 0 for its left end, 1 for its right
        end.
        """
        plot = self.page.locator("figure", has=self.page.locator("h3", has_text=title)).locator(".plot")
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        assert box is not None
        self.page.mouse.move(box["x"] + across * box["width"], box["y"] + box["height"] / 2)
        return self.tip()


@pytest.fixture
def opened(browser: Browser, page_file: Path, request: pytest.FixtureRequest) -> Iterator[Opened]:
    """Open the page of a run; the parameter is (width, color scheme)."""
    width, scheme = getattr(request, "param", (1280, "light"))
    with chromium.opened(browser, page_file, width, scheme) as (page, faults):
        yield Opened(page, page_file, faults)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the page of a run with all kinds of events, hostile and long names, and a heat map after its sections."""
    rows = []
    for step in range(10, 4001, 10):
        rows.append(update(step, accuracy=0.2, **({"skipped": True} if step == 1500 else {})))
        if step % 500 == 0:
            rows.append(validation(step, 3.0 - step / 4000))
    machine = {"cpu": HOSTILE, "level": "avx2", "threads": 8, "version": "1.0"}
    events = [
        {"time": "2026-01-01T10:00:00+0000", "event": "started", "machine": machine},
        *({"event": "saved", "step": step, "peak_memory": (500 + step // 100) << 20} for step in (1000, 2000, 3000)),
        {"event": "stopped", "step": 2000, "reason": "SIGTERM"},
        {"event": "resumed", "step": 2000, "changed": ["train.threads: saved 1, asked 8"], "machine": machine},
        {"event": "rewound", "from_step": 3100, "to_step": 3000, "first_batch": 3000, "last_batch": 3100},
        {"event": "save failed", "step": 3500, "reason": HOSTILE},
        {"event": "finished", "step": 4000, "reason": None, "peak_memory": 700 << 20},
    ]  # fmt: skip
    folder = write_run(
        tmp_path_factory.mktemp("pages") / "run",
        rows,
        events,
        "train.steps=4000",
        f"name={HOSTILE}{'x' * 120}",
        f"data.path=/{'long/' * 60}",
    )
    cells = np.arange(2 * 3 * 4, dtype=np.float64).reshape(2, 3, 4)
    picture = heat_map(
        "Cells",
        cells,
        rows=[f"layer {n}" for n in range(3)],
        columns=[f"expert {n}" for n in range(4)],
        steps=[1000, 2000],
        wide=True,
    )
    more = page_of("", "", [Section("Map", picture)])
    map_section = re.search(r"<section.*?</section>", more, re.DOTALL)
    assert map_section is not None
    text = run_page(records_of(folder)).replace("</main>", map_section.group() + "</main>")
    file = folder.path.parent / "page.html"
    file.write_text(text)
    return file


def test_the_pointer_shows_the_values_under_it(opened: Opened) -> None:
    text = opened.hover("Loss")
    assert "step 2,000" in text and "2,048,000 tokens" in text
    assert re.search(r"training\s+2\.0002 nats", text) and re.search(r"validation\s+2\.5 nats", text), text
    assert "resumed with train.threads: saved 1, asked 8" in text
    assert "step 4,000" in opened.hover("Gradient norm", 0.999)
    opened.page.mouse.move(0, 0)
    assert opened.page.locator(".tip:visible").count() == 0


def test_the_time_line_tells_what_happened(opened: Opened) -> None:
    assert re.search(r"saves\s+saved", opened.hover("Time line", 0.25))
    assert re.search(
        r"starts\s+resumed with train.threads[^\n]*\n*stops\s+stopped: SIGTERM",
        opened.hover("Time line", 0.5),
    )
    assert "back from step 3,100 to 3,000" in opened.hover("Time line", 0.75)
    assert f"save failed: {HOSTILE}" in opened.hover("Time line", 0.875)


def test_the_switch_shows_tokens_and_minutes(opened: Opened) -> None:
    for place, (name, last) in enumerate((("steps", "4000"), ("tokens", "4M"), ("minutes", "6"))):
        opened.page.locator(f".switch label:has-text('{name}')").click()
        figure = opened.page.locator("figure").first
        assert figure.locator(".view:visible").count() == 1
        labels = figure.locator(f".x{place} .below span")
        assert labels.last.inner_text() == last
        assert "step 2,000" in opened.hover("Loss")


def test_the_arrow_keys_walk_through_the_values(opened: Opened) -> None:
    opened.page.locator(".plot").first.focus()
    for key, text in (("ArrowRight", "step 10\n"), ("ArrowRight", "step 20\n"), ("ArrowLeft", "step 10\n")):
        opened.page.keyboard.press(key)
        assert text in opened.tip()
    opened.page.keyboard.press("Escape")
    assert opened.page.locator(".tip:visible").count() == 0


def test_the_slider_of_a_heat_map_shows_other_steps(opened: Opened) -> None:
    assert opened.hover("Cells", 0.9).split("\n")[:2] == ["layer 1, expert 3", "19"]
    slider = opened.page.locator("input[type=range]")
    before = opened.page.locator(".heat svg").inner_html()
    slider.fill("0")
    assert opened.page.locator("output").inner_text() == "step 1,000"
    assert opened.hover("Cells", 0.9).split("\n")[:2] == ["layer 1, expert 3", "7"]
    slider.fill("1")
    after = opened.page.locator(".heat svg")
    paths = sorted(re.findall(r'd="([^"]+)"', before))
    assert sorted(re.findall(r'd="([^"]+)"', after.inner_html())) == paths  # as drawn by Python


@pytest.mark.parametrize("opened", [(360, "light"), (360, "dark")], indirect=True)
def test_a_phone_needs_no_scrolling_sideways_and_shows_values_at_a_touch(opened: Opened) -> None:
    width = opened.page.evaluate("document.documentElement.scrollWidth")
    assert width == 360
    plot = opened.page.locator(".plot").first
    plot.scroll_into_view_if_needed()
    plot.tap()
    assert "training" in opened.tip()
    box = opened.page.locator(".tip:visible").bounding_box()
    assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 360
    for summary in opened.page.locator("summary").all():
        summary.click()
    assert chromium.clipped(opened.page) == []


@pytest.mark.parametrize("width", [360, 1280])
def test_a_run_with_one_logged_row_shows_all_its_text(browser: Browser, width: int, tmp_path: Path) -> None:
    events = [{"event": "started"}, {"event": "finished", "step": 1}]
    folder = write_run(tmp_path / "run", [update(1), validation(1, 5.0)], events)
    file = tmp_path / "page.html"
    write_page(folder, records_of(folder).config, file)
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(file.as_uri())
    assert page.locator("figure h3:visible").all_inner_texts() == ["Time line"]
    assert chromium.clipped(page) == []
    page.close()


@pytest.mark.parametrize("width", [360, 1280])
def test_long_labels_of_an_axis_are_inside_the_chart(browser: Browser, width: int, tmp_path: Path) -> None:
    rows = [update(step, tokens_per_second=5963.01 + 1e-6 * step) for step in (1, 2, 3)]
    file = tmp_path / "page.html"
    file.write_text(run_page(records_of(write_run(tmp_path / "run", rows))))
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(file.as_uri())
    figure = page.locator("figure", has=page.locator("h3", has_text="Speed"))
    around = figure.bounding_box()
    boxes = [one.bounding_box() for one in figure.locator(".left span").all()]
    assert around is not None and boxes != []
    assert all(box is not None and box["x"] > around["x"] for box in boxes)
    assert max(map(len, figure.locator(".left span").all_inner_texts())) > 7
    page.close()


CONTRAST = """() => {
  const light = (c) => {
    const [r, g, b] = c.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (at) => {
    for (let one = at; one; one = one.parentElement) {
      const color = parts(getComputedStyle(one).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const ratio = (a, b) => {
    const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const found = [];
  for (const one of document.querySelectorAll("body *")) {
    const style = getComputedStyle(one);
    const text = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const drawn = one.matches(".plot path.line, .plot path.dot");
    if (!one.getClientRects().length || (!text && !drawn)) continue;
    const color = parts(drawn ? style.stroke : style.color).slice(0, 3);
    found.push([drawn ? "curve" : "text", ratio(color, ground(one)), one.outerHTML.slice(0, 80)]);
  }
  return found;
}"""


@pytest.mark.parametrize("opened", [(1280, "light"), (1280, "dark")], indirect=True)
def test_text_and_curves_have_contrast_in_both_schemes(opened: Opened) -> None:
    opened.page.locator("summary").first.click()
    opened.hover("Loss")
    found = opened.page.evaluate(CONTRAST)
    assert {kind for kind, _, _ in found} == {"curve", "text"} and len(found) > 100
    least = {"text": 4.5, "curve": 3.0}  # required by WCAG 2, level AA
    assert [json.dumps(one) for one in found if one[1] < least[one[0]]] == []
    dark = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark in ("rgb(251, 251, 250)", "rgb(20, 23, 26)")


def test_the_policy_of_the_page_allows_no_other_script(opened: Opened) -> None:
    opened.page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran=1\">')"
    )
    opened.page.wait_for_timeout(200)
    assert opened.page.evaluate("window.ran") is None
    assert opened.faults != []  # Chromium reports everything that it has blocked
    opened.faults.clear()
