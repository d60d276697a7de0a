"""The notebooks run from the first cell to the last in fresh kernels, and their outputs equal the stored ones."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest

import notebooks
from places import ROOT


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the environment of the kernels: the sources of this checkout, two threads, an empty home."""
    paths = [str(ROOT / "python"), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize("path", notebooks.notebooks(), ids=lambda path: path.stem)
@pytest.mark.usefixtures("environment")
def test_a_notebook_shows_what_was_kept(path: Path, tmp_path: Path) -> None:
    kept = nbformat.read(path, as_version=4)
    code = [cell for cell in kept.cells if cell.cell_type == "code"]
    assert kept.cells[0].cell_type == "markdown" and code
    assert all(cell.execution_count is not None for cell in code), (
        "tests/notebooks.py --write keeps the outputs"
    )
    assert not any(output.output_type == "error" for cell in code for output in cell.outputs)
    assert not list(notebooks.differences(kept, notebooks.executed(path, tmp_path)))


@pytest.mark.parametrize(
    ("text", "other", "equal"),
    [
        ("loss 2.31 at step 10", "loss 2.32 at step 10", True),
        ("loss 2.31", "loss 2.91", False),
        ("loss 2.31", "perplexity 2.31", False),
        ("8,192 tokens", "8,200 tokens", True),
        ("[1 2]", "[1 2 3]", False),
        ("weights 1e-3", "weights 1e3", False),
    ],
)
def test_numbers_may_differ_a_little_and_words_not(text: str, other: str, equal: bool) -> None:
    assert notebooks.near(text, other) == equal
