"""The notebooks run from the first cell to the last, by nbval, and are committed without output."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from places import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks_for_ops_training_and_the_inside_of_models() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["look_inside", "ops", "train"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_output(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code and cells[0]["cell_type"] == "markdown"
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)


def test_every_cell_runs(tmp_path: Path) -> None:
    for path in NOTEBOOKS:  # what they write is not the repository's
        shutil.copy(path, tmp_path)
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--nbval-lax",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        ".",
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")])),
        "OMP_NUM_THREADS": "2",
        "JUPYTER_PLATFORM_DIRS": "1",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    cells = sum(
        cell["cell_type"] == "code" for path in NOTEBOOKS for cell in json.loads(path.read_text())["cells"]
    )
    assert f"{cells} passed" in done.stdout
