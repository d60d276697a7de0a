"""Fixtures for several tests of the command tune."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a small llama in several files, a chat template and 40 conversations. Tests change copies
    only.
    """
    from tune_folders import write_given  # needs torch; other tests of this folder do not

    return write_given(tmp_path_factory.mktemp("given"), 40)


@pytest.fixture
def here(given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the folder `given`. It is the current folder during the test."""
    shutil.copytree(given, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"
