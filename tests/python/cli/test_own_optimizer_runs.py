"""Runs whose optimizer is a file of the user: resumes, copies, a changed file, mistakes, ranks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mpi_ranks import ENVIRONMENT, needs_mpi
from own_cases import ADAMW, MOMENTUM
from tiny_run import TinyRun

SHORT = ("train.steps=8", "train.save_every=2", "train.eval_every=4", "train.log_every=2")
START = "import mudd_core as mc\n"


def own_run(folder: Path, text: Path, name: str, *words: str) -> TinyRun:
    return TinyRun(folder, text, (f"optim.name={name}", *SHORT, *words))


def test_the_slow_update_is_said_once(tiny_text: Path, tmp_path: Path) -> None:
    whole = own_run(tmp_path / "whole", tiny_text, ADAMW).finished()
    assert whole.output.count("is a Python function: its updates take longer") == 1


def test_a_changed_file_is_named_and_the_copy_resumes(tiny_text: Path, tmp_path: Path) -> None:
    file, work = tmp_path / "mine.py", tmp_path / "run"
    file.write_text(Path(ADAMW.partition(":")[0]).read_text())
    first = own_run(work, tiny_text, f"{file}:adamw", "train.stop_at=3")
    first.stopped()
    assert (work / "optim_name.py").read_text() == file.read_text()
    file.write_text(file.read_text().replace("beta1: float = 0.9", "beta1: float = 0.8"))
    changed = own_run(work, tiny_text, f"{file}:adamw")
    assert changed.finish() == 2
    assert re.search(
        rf"error: \[resume\] optim.name: {file} has changed since .*: SHA-256 \w+... then, ", changed.tail
    )
    way_out = re.search(r"resume with the run's copy: optim.name=(\S+),", changed.tail)
    assert way_out
    own_run(work, tiny_text, way_out[1]).finished()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, r"\[optim.name\] expected FILE.py:NAME, got '.*mine.py:mine': there is no file"),
        (START, r"mine.py: mine is missing; expected a function mine and mc.register_optimizer\(mine\)"),
        (
            START + "def mine(w, g):\n    pass\nmc.register_optimizer(mine)\n",
            r"mine.py, line 4: TypeError: .*expected update\(w, g, state, lr\), got mine\(w, g\)",
        ),
        (
            START + "def mine(w, g, state, lr):\n    return w[:5]\nmc.register_optimizer(mine)\n",
            r"\[optim.name\] .*mine.py:mine: new weights: expected float32\[\d+\], got float32\[5\]",
        ),
        (
            START + "def mine(w, g, state, lr):\n    w -= lrate * g\nmc.register_optimizer(mine)\n",
            r"\[optim.name\] .*mine.py, line 3: NameError: name 'lrate' is not defined",
        ),
    ],
)
def test_a_mistake_is_one_line(text: str | None, said: str, tiny_text: Path, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    run = own_run(tmp_path / "run", tiny_text, f"{tmp_path}/mine.py:mine")
    assert run.finish() == 2, run.tail
    errors = [line for line in run.output.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and re.search(said, errors[0]), run.tail
    assert "Traceback" not in run.output


@needs_mpi
@pytest.mark.parametrize("name", [ADAMW, MOMENTUM])
def test_two_ranks_have_the_bits_of_one(name: str, tiny_text: Path, tmp_path: Path) -> None:
    whole = own_run(tmp_path / "whole", tiny_text, name).finished()
    run = own_run(tmp_path / "run", tiny_text, name, "--ranks=2")
    run.environment = ENVIRONMENT
    run.finished()
    assert run.same_as(whole)
