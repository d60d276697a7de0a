"""The stored inputs of the Python fuzz targets: each returns a value or raises the error that its reader documents."""

from __future__ import annotations

import contextlib
import random
import sys
from pathlib import Path

import pytest

from places import TESTS

FUZZ = TESTS / "fuzz"
sys.path.insert(0, str(FUZZ / "python"))

from driver import NAMES  # noqa: E402
from mutation import change_json  # noqa: E402
from readers import TARGETS  # noqa: E402

INPUTS = [file for name in NAMES for file in sorted((FUZZ / "corpus" / name).iterdir())]


@pytest.mark.parametrize("file", INPUTS, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_kept_inputs_are_read_or_refused(file: Path, tmp_path: Path) -> None:
    target = TARGETS[file.parent.name]
    with contextlib.suppress(*target.refusals):
        target.run(file.read_bytes(), tmp_path)


def test_every_target_has_a_corpus() -> None:
    assert sorted(TARGETS) == sorted(NAMES)
    in_cpp = {file.stem.removeprefix("target_") for file in FUZZ.glob("target_*.cc")}
    assert {folder.name for folder in (FUZZ / "corpus").iterdir()} == in_cpp | set(NAMES)


def test_the_same_seed_gives_the_same_inputs() -> None:
    seed = (FUZZ / "corpus" / "manifest" / "small").read_bytes()
    first, second = (
        [change_json(seed, seed, draw) for _ in range(50)] for draw in (random.Random(7), random.Random(7))
    )
    assert first == second
    assert len(set(first)) > 40
