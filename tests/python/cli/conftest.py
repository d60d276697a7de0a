"""Fixtures that several tests of the command tune share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small llama in several files, with a chat template, and 40 conversations; tests change copies alone."""
    from tune_folders import write_given  # needs torch, which other tests of this folder do without

    return write_given(tmp_path_factory.mktemp("given"), 40)


@pytest.fixture
def here(given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of these, as the current folder."""
    shutil.copytree(given, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"
