"""The README: its Python runs as it stands, its links and the tests it names exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from places import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_python_of_the_readme_runs(tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = mc.load_config
    small = [f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'readme'}", "data.vocab_size=300"]
    small += ["model.d_model=16", "model.n_layer=1", "model.d_ff=32", "train.steps=2", "train.seq_len=16"]
    monkeypatch.setattr(mc, "load_config", lambda name, words: load(name, [*words, *small]))
    script = tmp_path / "readme.py"
    script.write_text("\n".join(re.findall(r"```python\n(.*?)```", PAGES[0].read_text(), re.DOTALL)))
    names = runpy.run_path(str(script))
    gradients, half = names["gradients"], names["half"]
    assert isinstance(gradients, dict) and "embed" in gradients
    assert isinstance(half, np.ndarray) and (half == 0.5).all()


def test_the_readme_is_short_and_begins_with_what_a_newcomer_needs() -> None:
    lines = PAGES[0].read_text().splitlines()
    assert len(lines) <= 170
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
