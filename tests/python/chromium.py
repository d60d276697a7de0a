"""Chromium for tests of pages: Debian's chromium and pip's playwright; ./run test installs both if it can.

If they are missing or the browser does not start, the tests are skipped with the reason. MUDD_TEST_BROWSER=required
makes that a failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def missing(reason: str) -> None:
    """Skip the test with this reason, or fail it if the browser is required."""
    text = f"{reason}; ./run test installs chromium (Debian) and playwright (pip) where it can"
    if os.environ.get("MUDD_TEST_BROWSER") == "required":
        pytest.fail(text)
    pytest.skip(text)


@contextmanager
def launched() -> Iterator[Browser]:
    """Yield the browser and close it at the end."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        missing(f"no browser: none of {', '.join(PROGRAMS)} is installed")
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        missing("no package playwright")
    with sync_playwright() as playwright:
        try:
            chromium = playwright.chromium.launch(
                executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"]
            )
        except Error as error:
            missing(f"{program} does not start: {str(error).splitlines()[0]}")
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Yield one browser for the tests of a file."""
    with launched() as found:
        yield found


@contextmanager
def opened(browser: Browser, file: Path, width: int, scheme: str) -> Iterator[tuple[Page, list[str]]]:
    """Yield a page of one file and its faults: output on the console, errors, dialogs and requests.

    Fail at the end if the list has any.
    """
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, has_touch=width < 500
    )
    context.set_default_timeout(10_000)
    page, url, faults = context.new_page(), file.as_uri(), list[str]()
    page.on("console", lambda message: faults.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
    page.on("request", lambda sent: sent.url == url or faults.append(f"request: {sent.url}"))
    page.goto(url)
    yield page, faults
    context.close()
    assert faults == []


_CLIPPED = """() => [...document.querySelectorAll("body *")].filter((one) => {
  const text = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!text || !one.getClientRects().length) return false;
  const box = one.getBoundingClientRect();
  const hidden = getComputedStyle(one).overflowX === "hidden" && one.scrollWidth > one.clientWidth;
  return hidden || box.left < 0 || box.right > document.documentElement.clientWidth;
}).map((one) => one.outerHTML.slice(0, 120))"""


def clipped(page: Page) -> list[str]:
    """Return the elements of a page whose text is cut off, or which are wider than the window."""
    found: list[str] = page.evaluate(_CLIPPED)
    return found
