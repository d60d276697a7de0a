"""The documentation site: its sources, and the errors of its build; test_site_in_chromium.py has the built pages."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from places import ROOT

sys.path.insert(0, str(ROOT / "docs" / "site"))

import site_build
import site_diagrams
import site_notebooks
import site_sources


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "sources"
    site_sources.written(folder)
    return folder


def test_every_page_notebook_and_example_is_in_the_site(sources: Path) -> None:
    pages = {path.relative_to(sources).as_posix() for path in sources.rglob("*.md")}
    docs = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert {
        name for name in docs if name.rpartition("/")[2] != "README.md" and name != "site/search.md"
    } <= pages
    assert {f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")} <= pages
    assert {f"examples/{path.stem}.md" for path in (ROOT / "examples").glob("*.py")} <= pages
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"} <= pages


def test_a_dead_link_and_a_page_without_a_link_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = site_sources.Source("docs/index.md", "index.md", "# A\n\n## B\n\n- [data](data.md)\n")
    lost = site_sources.Source("docs/ops.md", "ops.md", "# D\n")
    page = site_sources.Source("docs/data.md", "data.md", "# C\n\n`[x](not/a/link)` and [x](../nowhere.py)\n")
    monkeypatch.setattr(site_sources, "sources", lambda: [index, page])
    with pytest.raises(site_sources.SiteError, match=r"^docs/data.md: link to nowhere.py: expected a file"):
        site_sources.written(tmp_path)
    whole = site_sources.Source("docs/data.md", "data.md", "# C\n")
    monkeypatch.setattr(site_sources, "sources", lambda: [index, whole, lost])
    with pytest.raises(site_sources.SiteError, match=r"expected a link to every page, found none to ops.md"):
        site_sources.written(tmp_path)


@pytest.mark.parametrize(
    "cell", [{"execution_count": None, "outputs": [{}]}, {"execution_count": 1, "outputs": []}]
)
def test_a_notebook_without_an_output_is_named(cell: dict[str, object]) -> None:
    notebook = {"cells": [{"cell_type": "code", "source": ["print(1)"], **cell}]}
    with pytest.raises(
        site_notebooks.MissingOutputError, match=r"^notebooks/a.ipynb, cell 1: expected the output"
    ):
        site_notebooks.markdown("notebooks/a.ipynb", json.dumps(notebook))


def test_outputs_of_a_notebook_follow_their_cell() -> None:
    outputs = [{"text": ["1\n"]}, {"data": {"image/svg+xml": "<svg/>", "text/plain": "<Figure>"}}]
    cell = {"cell_type": "code", "source": "print(1)", "execution_count": 1, "outputs": outputs}
    page = site_notebooks.markdown("a", json.dumps({"cells": [cell]}))
    places = [page.index(text) for text in ("```python\nprint(1)", "\n1\n", "<svg/>")]
    assert places == sorted(places) and "<Figure>" not in page


def test_a_box_is_drawn_below_every_box_that_points_to_it() -> None:
    assert site_diagrams.depths([("b", "c"), ("a", "b"), ("a", "c")]) == {"b": 1, "c": 2, "a": 0}
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert "mermaid" not in site_diagrams.drawn(page)


def test_without_its_packages_the_build_says_how_to_install_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(site_build.importlib.util, "find_spec", lambda name: None)
    assert site_build.main([]) == 2
    assert re.fullmatch(r"site: package sphinx: expected .*pip install 'sphinx.*\n", capsys.readouterr().err)


def test_the_line_that_installs_the_packages_is_that_of_the_extra() -> None:
    extra = re.search(
        r"^site = \[(.*)\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert extra is not None
    assert "pip install " + extra[1].replace('"', "'").replace(",", "") in site_build._INSTALL
