"""Packages of the extras: the message for a missing one, and that every name belongs to an extra."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from mudd_core.base import packages
from mudd_core.base.errors import UserError
from mudd_core.base.packages import EXTRAS, install_command, needed
from places import ROOT

PROJECT = ROOT / "pyproject.toml"
# An instruction to install mudd_core, or an extra of it, from a registry; it is on none.
FROM_A_REGISTRY = re.compile(r"mudd[-_]core\[|pip install (-\S+ )*['\"]?mudd")


def checkout(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Make the package use `folder` as its checkout, with the running Python as its .venv."""
    (folder / "run").touch()
    monkeypatch.setattr(packages, "_CHECKOUT", folder)
    monkeypatch.setattr(sys, "prefix", str(folder / ".venv"))


def test_a_missing_package_is_an_error_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checkout(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "sentencepiece", None)  # as if it were not installed
    with pytest.raises(UserError) as error:
        needed("sentencepiece", "[data] tokenizer", "to read tokenizer.model")
    assert str(error.value) == (
        "[data] tokenizer: expected the package sentencepiece to read tokenizer.model, got none; "
        "install it: ./run setup seeds"
    )


def test_the_command_works_from_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    root = tmp_path / "my checkout"
    root.mkdir()
    checkout(monkeypatch, root)
    monkeypatch.chdir(tmp_path)
    assert install_command("pyarrow") == f"'{root}/run' setup seeds"


def test_an_installed_package_has_pip_install_the_missing_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checkout(monkeypatch, tmp_path)
    monkeypatch.setattr(sys, "prefix", "/usr")  # another Python than the checkout's
    monkeypatch.setattr(sys, "executable", "/my env/bin/python")
    monkeypatch.setattr("shutil.which", lambda _: "/my env/bin/pip")
    assert install_command("datasets") == "pip install datasets"
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/pip")  # of another Python
    assert install_command("datasets") == "'/my env/bin/python' -m pip install datasets"
    monkeypatch.setattr("shutil.which", lambda _: "/my env/bin/pip")
    (tmp_path / "run").unlink()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert install_command("datasets") == "pip install datasets"


def test_every_optional_package_is_in_its_extra() -> None:
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    for package, extra in EXTRAS.items():
        names = [line.partition(">")[0].partition("=")[0].partition(";")[0] for line in extras[extra]]
        assert package.replace("_", "-") in [name.replace("_", "-") for name in names], package


def test_no_advice_names_this_package_on_a_registry() -> None:
    root = PROJECT.parent
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout
    files = [
        root / name
        for name in listed.splitlines()
        if name not in ("CHANGELOG.md", Path(__file__).relative_to(ROOT).as_posix())
    ]
    assert len(files) > 500
    texts = {file: file.read_bytes().decode("utf-8", "replace") for file in files if file.is_file()}
    assert not [file for file, text in texts.items() if FROM_A_REGISTRY.search(text)]
