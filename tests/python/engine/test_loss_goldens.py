"""Whole runs against committed numbers: a change of any bit shows here, and so does a level with other bits."""

from __future__ import annotations

from pathlib import Path

import pytest

import loss_goldens


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden_cache")


@pytest.mark.parametrize("level", loss_goldens.levels())
def test_twenty_updates_of_every_family_have_the_committed_bits(level: str, cache: Path) -> None:
    made = loss_goldens.lines_at(level, str(cache))
    assert sum(map(len, made.values())) == len(loss_goldens.FAMILIES) * 2 * (loss_goldens.STEPS + 1)
    assert made == {file: loss_goldens.read(file) for file in made}


def test_every_file_is_of_a_family_or_a_unit() -> None:
    wanted = {file for level in loss_goldens.EVERYWHERE for file in loss_goldens.files(level)}
    assert set(loss_goldens.FOLDER.glob("*/*.txt")) - set((loss_goldens.FOLDER / "text").glob("*")) == wanted
