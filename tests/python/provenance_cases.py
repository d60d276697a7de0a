"""A small run, its exported folder, and edits of its statement, as a careless and as a careful forger makes them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mudd_core.cli import main
from tiny_run import TinyRun

WORDS = (
    "train.steps=6",
    "train.save_every=3",
    "train.eval_every=0",
    "optim.warmup_steps=0",
)


@pytest.fixture(scope="module")
def run(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """Return a finished run of six steps."""
    return TinyRun(tmp_path_factory.mktemp("verify") / "run", tiny_text, WORDS).trained()


@pytest.fixture(scope="module")
def folder(run: TinyRun) -> Path:
    """Return its exported folder."""
    return exported(run, run.workdir.parent / "exported")


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of this folder, which a test may change."""
    return copied(folder, tmp_path / "copy")


def exported(run: TinyRun, to: Path, *words: str) -> Path:
    """Export a run quietly, and return the folder."""
    assert main(["export", str(run.workdir), f"--to={to}", *words]) == 0
    return to


def copied(folder: Path, to: Path) -> Path:
    """Return a copy of a folder."""
    return Path(shutil.copytree(folder, to))


def verified(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> tuple[int, str, str]:
    """Return the exit code, the output and the errors of verify."""
    capsys.readouterr()
    code = main(["verify", str(folder), *words])
    text = capsys.readouterr()
    return code, text.out, text.err


def section_hash(value: Any) -> str:
    """Return the hash of a section, by the rule of docs/file-formats.md."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def edit(folder: Path, change: Callable[[dict[str, Any]], None], *, forged: bool = False) -> None:
    """Change the predicate of a statement. forged: compute the hashes of its sections and of the card again."""
    file = folder / "provenance.json"
    statement = json.loads(file.read_text())
    old = hashlib.sha256(file.read_bytes()).hexdigest()
    predicate = statement["predicate"]
    change(predicate)
    if forged:
        predicate["sections"] = {name: section_hash(predicate[name]) for name in predicate["sections"]}
    file.write_text(json.dumps(statement, indent=1) + "\n")
    card = folder / "README.md"
    if forged and card.exists():
        new = hashlib.sha256(file.read_bytes()).hexdigest()
        card.write_text(card.read_text().replace(old, new))
