"""launch.py sweep: the cells of a grid, and their runs in fresh processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mudd_core.base.errors import UserError
from mudd_core.cli.sweep.grid import grid_of
from places import ROOT
from tiny_run import CONFIG


def _command(text: Path, *words: str) -> list[str]:
    data = (f"data.path={text}", f"data.cache_dir={text.parent / 'cache'}")
    return [sys.executable, str(ROOT / "launch.py"), "sweep", f"--config={CONFIG}", *data, *words]


def _swept(text: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_command(text, *words), cwd=folder, text=True, capture_output=True, check=False)


def test_the_cells_are_the_combinations_in_the_order_of_the_arguments() -> None:
    grid = grid_of("tiny.py", ["--lr=1e-3,3e-3", "model.d_model=32,64", "train.steps=7"])
    assert grid.fields == ("optim.lr", "model.d_model")
    assert [cell.name for cell in grid.cells] == [
        f"lr={lr},d_model={width}" for lr in ("1e-3", "3e-3") for width in ("32", "64")
    ]
    assert grid.cells[1].arguments == ("train.steps=7", "optim.lr=1e-3", "model.d_model=64")


def test_a_string_field_is_an_axis_only_if_it_is_set_several_times() -> None:
    grid = grid_of("tiny.py", ["data.path=a,b", "data.path=c/d", "optim.name=adamw,muon"])
    assert grid.fields == ("data.path", "optim.name")
    assert [cell.values for cell in grid.cells[::2]] == [("a,b", "adamw"), ("c/d", "adamw")]
    assert [cell.name for cell in grid.cells[::2]] == ["path=a-b,name=adamw", "path=c-d,name=adamw"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["optim.lr=1e-3"], r"expected a field with several values, such as .* got optim.lr=1e-3"),
        ([], "got none"),
        (["optim.lr=1e-3,0.001"], r"optim.lr: expected each value once, got 0.001 2 times"),
        (["optim.lr=1e-3,fast"], "optim.lr: expected a number, got 'fast'"),
        (["optim.lr=1e-3,"], "optim.lr: expected a number, got ''"),
        (["model.d_model=32,33"], "d_model"),
        (["optim.rate=1,2"], "optim.rate"),
        (["data.path=a/b", "data.path=a-b"], "path=a-b for a/b and for a-b; rename one"),
    ],
)
def test_a_wrong_grid_is_refused_before_any_run(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        grid_of("tiny.py", words)


def test_two_jobs_end_with_the_weights_of_one_after_another(tiny_text: Path, tmp_path: Path) -> None:
    axes = ("train.seed=1,2", "optim.lr=1e-3,2e-3", "train.steps=3")
    jobs = min(2, len(os.sched_getaffinity(0)))
    together = _swept(tiny_text, tmp_path, *axes, f"--jobs={jobs}", "--out=many")
    assert together.returncode == 0, together.stderr
    alone = _swept(tiny_text, tmp_path, *axes, "--out=one")
    assert alone.returncode == 0, alone.stderr
    table = together.stdout.split("\n\n")[-1].splitlines()
    assert table[0].split()[:2] == ["train.seed", "optim.lr"]
    losses = [float(line.split()[2]) for line in table[1:5]]
    assert losses == sorted(losses)
    assert table[1:5] == alone.stdout.split("\n\n")[-1].splitlines()[1:5]
    assert (tmp_path / "many/sweep.html").read_text().count("<svg") > 1


def test_a_stopped_sweep_resumes_with_the_same_command(tiny_text: Path, tmp_path: Path) -> None:
    words = ("train.seed=1,2", "train.steps=100000", "--out=grid")
    process = subprocess.Popen(
        _command(tiny_text, *words), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    metrics = tmp_path / "grid/seed=1/metrics.jsonl"
    while process.poll() is None and not (metrics.is_file() and metrics.stat().st_size):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 75, said
    assert "stopped; 0 of 2 runs have ended; the same command resumes" in said
    assert not (tmp_path / "grid/seed=2").exists()
    again = _swept(tiny_text, tmp_path, *words, "--plan")
    assert again.returncode == 0 and again.stdout.count("train --config=") == 2


def test_a_run_that_fails_does_not_end_the_sweep(tiny_text: Path, tmp_path: Path) -> None:
    (tmp_path / "grid").mkdir()
    (tmp_path / "grid/seed=1").write_text("a file in place of the folder of a run")
    ended = _swept(tiny_text, tmp_path, "train.seed=1,2", "train.steps=2", "--out=grid")
    assert ended.returncode == 2
    rows = [line for line in ended.stdout.splitlines() if line.endswith(("of 2", "exit code 2"))]
    assert "finished, step 2 of 2" in rows[0] and "exit code 2" in rows[1]
