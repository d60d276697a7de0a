"""The types of the API as a strict type checker of a user sees them."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from places import ROOT

FOLDER = ROOT / "tests" / "data" / "api"
FILE, EXPERIMENTS = FOLDER / "typed.py", FOLDER / "experiments.py"
# Wrong uses; each is an error of the checker.
WRONG = {
    "mc.Trainr": 'Module has no attribute "Trainr"',
    "mc.Model(1)": 'incompatible type "int"',
    "mc.ops.linear([1.0], [2.0])": "No overload variant",
    "mc.ops.rms_norm(mc.Tensor([1.0]), epsilon=1.0)": "No overload variant",
    "mc.Tensor([1.0]).backward(retain_graph=True)": 'incompatible type "bool"; expected "Never"',
    "mc.Tensor([1.0]).cuda()": '"Tensor" has no attribute "cuda"',
    'mc.load_config("tiny.py", train_step=5)': 'Unexpected keyword argument "train_step" for "load_config"',
    'mc.load_config("tiny.py", train_steps="5")': 'incompatible type "str"; expected "int"',
    'mc.load_config("tiny.py", optim_schedule="cos")': "'linear', 'wsd', 'inverse_sqrt', 'phases']",
    "mc.Config().replace(train_steps=1.5)": "No overload variant",
    "mc.plan(5)": 'incompatible type "int"',
    'mc.plan("tiny.py", ranks="2")': 'incompatible type "str"; expected "int"',
    'mc.plan("tiny.py").peak': '"Plan" has no attribute "peak"',
    "mc.compare(1)": 'incompatible type "int"',
    'mc.export("a", "b", "adaptor")': "Literal['merged', 'adapter', 'gguf', 'gguf_adapter']",
    'mc.tune("a", "b")': 'Missing positional argument "workdir"',
    'mc.tune("a", "b", "c", lora_r=8)': 'Unexpected keyword argument "lora_r" for "tune"',
    'mc.tune("a", "b", "c", model_n_layer=8)': 'Unexpected keyword argument "model_n_layer"',
}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the lines of one run of the checker on the user's file and the wrong uses."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("typed")
    for file in (FILE, EXPERIMENTS):
        (folder / file.name).write_text(file.read_text())
    (folder / "wrong.py").write_text("\n".join(["import mudd_core as mc", *WRONG, ""]))
    options = ["--strict", "--disallow-any-expr", "--follow-imports=silent", "--no-error-summary"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            *options,
            f"--cache-dir={folder}/cache",
            FILE.name,
            EXPERIMENTS.name,
            "wrong.py",
        ],
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


def test_the_file_of_experiments_runs(
    tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(EXPERIMENTS))
    folders = names["train_all"](tiny_text, tmp_path / "runs")
    assert names["compared"](folders, tmp_path / "page.html") == 10  # train.log_every
    assert (tmp_path / "page.html").read_text().startswith("<!")
    assert names["handed_on"](folders[0], tmp_path / "hf").startswith("hf 20: ")
    assert names["changed"](names["config_for"](0, "linear", tiny_text)).train.batch_size == 8
