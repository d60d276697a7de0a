"""Whole runs against committed numbers: a change of any bit shows here."""

from __future__ import annotations

from pathlib import Path

import pytest

import loss_goldens


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden_cache")


@pytest.mark.parametrize("level", loss_goldens.LEVELS)
def test_ten_updates_of_every_family_have_the_committed_bits(level: str, cache: Path) -> None:
    want = loss_goldens.read(level)
    assert len(want) == len(loss_goldens.FAMILIES) * 2 * (loss_goldens.STEPS + 1)
    assert loss_goldens.lines_at(level, str(cache)) == want
