"""Packages of the extras: what a missing one says, and that every name belongs to an extra."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from mudd_core.base.errors import UserError
from mudd_core.base.packages import EXTRAS, needed

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def test_a_missing_package_is_an_error_with_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)  # as if it were not installed
    with pytest.raises(UserError) as error:
        needed("sentencepiece", "[data] tokenizer", "to read tokenizer.model")
    assert str(error.value) == (
        "[data] tokenizer: expected the package sentencepiece to read tokenizer.model, got none; "
        "install it: pip install 'mudd-core[seeds]'"
    )


def test_every_optional_package_is_in_its_extra() -> None:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    for package, extra in EXTRAS.items():
        names = [line.partition(">")[0].partition("=")[0].partition(";")[0] for line in extras[extra]]
        assert package.replace("_", "-") in [name.replace("_", "-") for name in names], package
