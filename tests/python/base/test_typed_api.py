"""The types of the API as a strict type checker of a user sees them."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from places import ROOT

FILE = ROOT / "tests" / "data" / "api" / "typed.py"
# Wrong uses; each is an error of the checker.
WRONG = {
    "mc.Trainr": 'Module has no attribute "Trainr"',
    "mc.Model(1)": 'incompatible type "int"',
    "mc.ops.linear([1.0], [2.0])": "No overload variant",
    "mc.ops.rms_norm(mc.Tensor([1.0]), epsilon=1.0)": "No overload variant",
    "mc.Tensor([1.0]).backward(retain_graph=True)": 'incompatible type "bool"; expected "Never"',
    "mc.Tensor([1.0]).cuda()": '"Tensor" has no attribute "cuda"',
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the lines of one run of the checker on the user's file and the wrong uses."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("typed")
    (folder / "typed.py").write_text(FILE.read_text())
    (folder / "wrong.py").write_text("\n".join(["import mudd_core as mc", *WRONG, ""]))
    options = ["--strict", "--disallow-any-expr", "--follow-imports=silent", "--no-error-summary"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, f"--cache-dir={folder}/cache", "typed.py", "wrong.py"],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == "" and done.returncode == 1, done.stderr
    return done.stdout.splitlines()


def test_a_users_file_has_no_expression_of_type_any(answers: list[str]) -> None:
    assert [line for line in answers if not line.startswith("wrong.py:")] == []


def test_wrong_uses_are_errors_of_the_checker(answers: list[str]) -> None:
    for number, (code, says) in enumerate(WRONG.items(), 2):
        assert any(line.startswith(f"wrong.py:{number}: error: ") and says in line for line in answers), code


def test_the_file_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(FILE))
    assert isinstance(names["tape"](), float)
    assert isinstance(names["train"](tmp_path / "run"), float)
