"""Whole runs against committed losses: a change of any bit is an error here, and so is a level with other bits."""

from __future__ import annotations

from pathlib import Path

import pytest

import loss_goldens


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden_cache")


@pytest.mark.parametrize("level", loss_goldens.levels())
def test_twenty_updates_of_every_family_have_the_committed_bits(level: str, cache: Path) -> None:
    if level.startswith("emu_"):
        check_first_updates(level, cache)
        return
    made = loss_goldens.lines_at(level, str(cache))
    assert sum(map(len, made.values())) == len(loss_goldens.FAMILIES) * 2 * (loss_goldens.STEPS + 1)
    assert made == {file: loss_goldens.read(file) for file in made}


def check_first_updates(level: str, cache: Path) -> None:
    """Check the first updates in bf16, which take a minute in an emulation; `./run soak levels` runs all twenty."""
    first = loss_goldens.EMULATED_STEPS
    made = [line for part in loss_goldens.lines_at(level, str(cache), first=first).values() for line in part]
    (file,) = (file for file in loss_goldens.files(level) if file.parent.name == "bf16")
    steps = [str(step) for step in range(1, first + 1)]
    assert made == [line for line in loss_goldens.read(file) if line.split()[1] in steps]
    assert len(made) == len(loss_goldens.FAMILIES) * first


def test_every_file_is_of_a_family_or_a_unit() -> None:
    wanted = {
        file
        for level in (*loss_goldens.EVERYWHERE, *loss_goldens.OF_CPU)
        for file in loss_goldens.files(level)
    }
    assert set(loss_goldens.FOLDER.glob("*/*.txt")) - set((loss_goldens.FOLDER / "text").glob("*")) == wanted
