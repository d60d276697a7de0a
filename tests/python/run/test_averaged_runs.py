"""train.average in whole runs: resumes, rules of a change, validation, and the commands with --average."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.checkpoint import load_step
from mudd_core.cli import main
from places import ROOT
from tiny_run import TinyRun

WORDS = (
    "train.steps=6",
    "train.save_every=2",
    "train.eval_every=2",
    "train.keep_last=0",
    "optim.warmup_steps=0",
)
EMA, LAST = "train.average=ema:0.5", "train.average=last:3"


def tensors(run: TinyRun, step: int) -> dict[str, Any]:
    return load_step(run.checkpoints, step).tensors


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return found.keys() == wanted.keys() and all(
        found[name].tobytes() == wanted[name].tobytes() for name in wanted
    )


def resumed_from(run: TinyRun, step: int, folder: Path, *words: str) -> TinyRun:
    """Return a copy of a run that continues from an earlier step with other fields."""
    shutil.copytree(run.workdir, folder)
    for later in folder.glob("checkpoints/step-*"):
        if int(later.name[5:]) > step:
            shutil.rmtree(later)
    (folder / "summary.json").unlink()
    return TinyRun(folder, run.text, (*WORDS, *words)).trained()


@pytest.fixture(scope="module")
def runs(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TinyRun]:
    """Return a run without an average, one with a moving average, and one with a mean over the last updates."""
    folder = tmp_path_factory.mktemp("averaged")
    rules = {"plain": (), "ema": (EMA,), "last": (LAST,)}
    return {
        name: TinyRun(folder / name, tiny_text, (*WORDS, *words)).trained() for name, words in rules.items()
    }


def test_the_weights_and_files_of_a_run_stay_the_same(runs: dict[str, TinyRun]) -> None:
    plain = runs["plain"]
    assert not any("average" in name for name in tensors(plain, 6))
    assert not any("val_loss_average" in row for row in plain.rows())
    for name in ("ema", "last"):
        assert runs[name].summary()["final_hash"] == plain.summary()["final_hash"]
        rows = [{k: v for k, v in row.items() if k != "val_loss_average"} for row in runs[name].rows()]
        assert rows == plain.rows()


@pytest.mark.parametrize("rule", ["ema", "last"])
@pytest.mark.parametrize("step", [2, 4])
def test_a_resumed_run_has_the_same_average(
    runs: dict[str, TinyRun], tmp_path: Path, rule: str, step: int
) -> None:
    words = {"ema": EMA, "last": LAST}[rule]
    again = resumed_from(runs[rule], step, tmp_path / "again", words)
    assert same(tensors(again, 6), tensors(runs[rule], 6)) and "note: train.average" not in again.output
    assert again.rows() == runs[rule].rows()


def test_an_average_that_is_switched_on_starts_from_the_current_weights(
    runs: dict[str, TinyRun], tmp_path: Path
) -> None:
    on = resumed_from(runs["plain"], 4, tmp_path / "on", EMA)
    assert (
        "note: train.average=ema:0.5: the checkpoint has no mean, so a new one starts at step 4" in on.output
    )
    assert on.summary()["final_hash"] == runs["plain"].summary()["final_hash"]
    found = tensors(on, 6)
    assert found["updates/averaged"].tolist() == [-1, 2]
    assert not np.array_equal(found["average/embed"], tensors(runs["ema"], 6)["average/embed"])
    early = resumed_from(runs["plain"], 2, tmp_path / "early", LAST)  # nothing of its mean is lost
    assert "note: train.average" not in early.output
    assert same(tensors(early, 6), tensors(runs["last"], 6))


def test_an_average_that_is_switched_off_is_dropped(runs: dict[str, TinyRun], tmp_path: Path) -> None:
    off = resumed_from(runs["ema"], 4, tmp_path / "off", "train.average=")
    assert "note: train.average is empty: the mean of the weights is dropped" in off.output
    assert same(tensors(off, 6), tensors(runs["plain"], 6))


def test_the_mean_of_other_updates_starts_again(runs: dict[str, TinyRun], tmp_path: Path) -> None:
    told = "the checkpoint has the mean of other updates, so a new one starts at step"
    other = resumed_from(runs["ema"], 4, tmp_path / "other", LAST)
    assert f"note: train.average=last:3: {told} 4" in other.output
    assert tensors(other, 6)["updates/averaged"].tolist() == [3, 2]
    constant = ("optim.schedule=constant",)
    short = TinyRun(tmp_path / "long", runs["last"].text, (*WORDS, *constant, LAST)).trained()
    long = (*WORDS[1:], *constant, LAST, "train.steps=10", "train.extend=true")
    longer = TinyRun(short.workdir, short.text, long).trained()
    assert f"note: train.average=last:3: {told} 6" in longer.output
    straight = TinyRun(tmp_path / "straight", short.text, long).trained()
    assert same(tensors(longer, 10), tensors(straight, 10))


def launch(*words: str) -> str:
    """Return the output of a command in a fresh process."""
    done = subprocess.run([sys.executable, str(ROOT / "launch.py"), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_and_python_read_the_average(
    runs: dict[str, TinyRun], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("ema", "last"):
        folder, rows = str(runs[name].workdir), runs[name].rows()
        logged = [row for row in rows if "val_loss_average" in row][-1]
        assert logged["step"] == 6 and logged["val_loss_average"] != logged["val_loss"]
        for option, key in (("--average", "val_loss_average"), ("--step=6", "val_loss")):
            assert f"validation loss {logged[key]:.6f}" in launch("validate", folder, option)
    saved = tensors(runs["last"], 6)
    with_mean = mc.load_run(folder, average=True).model
    for parameter, value in mc.load_run(folder).model.parameters.items():
        assert value.tobytes() == saved[parameter].tobytes()
        assert with_mean.parameters[parameter].tobytes() == saved[f"average/{parameter}"].tobytes()
    texts = []
    for words in (("--average",), ()):
        assert main(["sample", folder, "--prompt=a", "sample.max_tokens=20", *words]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] != texts[1]
    target = str(tmp_path / "exported")
    assert main(["export", folder, "--average", f"--to={target}", "--system=own"]) == 0
    exported = mc.load(target).model.parameters
    assert all(value.tobytes() == with_mean.parameters[name].tobytes() for name, value in exported.items())


def test_a_first_mean_over_the_last_updates_is_validated_only_once_it_has_started(
    runs: dict[str, TinyRun],
) -> None:
    steps = [row["step"] for row in runs["last"].rows() if "val_loss_average" in row]
    assert steps == [4, 6] and "with the averaged weights" in runs["last"].output


def test_mistakes_are_answered_with_the_value_to_type(
    runs: dict[str, TinyRun], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for value, told in (
        ("ema:1", "expected ema:DECAY with 0 < DECAY < 1, such as ema:0.999, or last:N"),
        ("ema:nan", "expected ema:DECAY"),
        ("mean", "expected ema:DECAY"),
        ("last:0", "expected ema:DECAY"),
        ("last:7", r"expected last:N with at most 6 updates \(train.steps\), got 'last:7'"),
    ):
        refused = TinyRun(tmp_path / "refused", runs["plain"].text, (*WORDS, f"train.average={value}"))
        assert refused.finish_here() == 2, value
        assert re.search(rf"\[config\] train\.average: {told}", refused.output), refused.output
    endless = TinyRun(tmp_path / "end", runs["plain"].text, (*WORDS, LAST, "train.to_data_end=true"))
    assert endless.finish_here() == 2 and "set train.average=ema:0.999" in endless.output
    plain = str(runs["plain"].workdir)
    assert main(["validate", plain, "--average"]) == 2
    assert f"launch.py average {plain} --last=3" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"has no averaged weights in this checkpoint"):
        _ = mc.load_run(plain, average=True).model
    folder = mc.load_run(plain).model.save(tmp_path / "model")
    with pytest.raises(UserError, match=r"\[load_run\] average: expected a run, got the saved model"):
        mc.load_run(folder, average=True)
    with pytest.raises(TypeError, match=r"\[load_run\] average: expected True or False, got 'yes'"):
        mc.load_run(plain, average="yes")  # type: ignore[arg-type]


def test_a_new_run_from_weights_starts_a_new_mean(runs: dict[str, TinyRun], tmp_path: Path) -> None:
    found = []
    for name in ("plain", "last"):
        start = (f"start.load_parameters_path={runs[name].workdir}", "start.keep_optimizer=true")
        run = TinyRun(tmp_path / name, runs[name].text, (*WORDS, LAST, *start)).trained()
        assert [row["step"] for row in run.rows() if "val_loss_average" in row] == [4, 6]
        found.append(tensors(run, 6))
    assert same(*found)
