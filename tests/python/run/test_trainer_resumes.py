"""mc.Trainer("runs/x") resumes the run in this folder with its saved config."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mudd_core as mc
from own_cases import plus_file
from tiny_run import TinyRun

WORDS = ("train.steps=20", "train.save_every=4", "train.eval_every=8")


def test_a_stopped_run_is_resumed_by_its_folder_with_the_hash_of_an_unbroken_one(
    tiny_text: Path, tmp_path: Path
) -> None:
    unbroken = TinyRun(tmp_path / "unbroken", tiny_text, WORDS).finished()
    stopped = TinyRun(tmp_path / "stopped", tiny_text, (*WORDS, "train.stop_at=9"))
    stopped.stopped()
    code = (
        "import mudd_core as mc\n"
        "with mc.Trainer('stopped') as trainer:\n"
        "    assert trainer.step_done == 9\n"
        "    print(trainer.fit().final_hash)\n"
    )
    (tmp_path / "resume.py").write_text(code)
    done = subprocess.run([sys.executable, "resume.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == unbroken.summary()["final_hash"]
    assert stopped.rows() == unbroken.rows()


def test_a_run_of_an_architecture_of_ones_own_is_resumed_by_its_folder(
    tiny_text: Path, tmp_path: Path
) -> None:
    words = ("train.steps=6", "train.save_every=2", f"--model.family={plus_file(tmp_path)}:Plus")
    unbroken = TinyRun(tmp_path / "unbroken", tiny_text, words).finished()
    stopped = TinyRun(tmp_path / "stopped", tiny_text, (*words, "train.stop_at=3"))
    stopped.stopped()
    code = "import mudd_core as mc; print(mc.Trainer('stopped').fit().final_hash)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == unbroken.summary()["final_hash"], done.stderr


def test_the_folder_of_a_run_takes_no_second_folder(tiny_text: Path, tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "run", tiny_text, ("train.steps=2",))
    run.finished()
    with pytest.raises(
        ValueError, match=r"\[Trainer\] workdir: expected none with .*, got 'other'; leave workdir out"
    ):
        mc.Trainer(run.workdir, "other")
    for inside in (run.checkpoints, run.checkpoints / "step-2"):
        with pytest.raises(
            ValueError, match=r"\[Trainer\] config: .*; mc\.Trainer\('.*/run'\) resumes its run"
        ):
            mc.Trainer(inside)
    with pytest.raises(ValueError, match=r"\[Trainer\] config: .*; did you mean '.*/run'\?$"):
        mc.Trainer(tmp_path / "rum")
    with pytest.raises(ValueError, match=r"trains the model of a folder further"):
        mc.Trainer(mc.load_run(run.workdir).model.save(tmp_path / "models" / "model"))
    with pytest.raises(ValueError, match=r"no config file 'tiyn\.py'; did you mean 'tiny\.py'"):
        mc.Trainer("tiyn.py")
    changed = mc.load_run(run.workdir).config.replace("train.log_every", 2)
    with mc.Trainer(changed, run.workdir) as trainer:
        assert trainer.step_done == 2 and trainer.config.train.log_every == 2
