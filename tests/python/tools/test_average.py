"""`average RUN --last=N`: the mean of the last checkpoints, in the folder of a run that all commands read."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.checkpoint import load_step
from mudd_core.cli import main
from places import ROOT
from tiny_run import TinyRun

WORDS = (
    "train.steps=6",
    "train.save_every=2",
    "train.eval_every=0",
    "train.keep_last=0",
    "optim.warmup_steps=0",
)


@pytest.fixture(scope="module")
def run(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    words = (*WORDS, "train.trainable=!head", "train.average=ema:0.5")
    return TinyRun(tmp_path_factory.mktemp("average") / "run", tiny_text, words).trained()


def test_a_fresh_process_averages_in_float64(run: TinyRun) -> None:
    words = ["average", str(run.workdir), "--last=3"]
    done = subprocess.run([sys.executable, str(ROOT / "launch.py"), *words], capture_output=True, text=True)
    target = Path(f"{run.workdir}-average")
    assert done.returncode == 0 and "checkpoints of steps 2, 4 and 6" in done.stdout, done.stderr
    assert f" of {run.workdir} in {target}; to use it:\n" in done.stdout  # as the user wrote it: absolute
    before = [load_step(run.checkpoints, step).tensors for step in (2, 4, 6)]
    found = load_step(target / "checkpoints", 6)
    assert [path.name for path in (target / "checkpoints").iterdir()] == ["step-6"]
    assert found.tensors.keys() == {name for name in before[-1] if "average" not in name}
    for name, value in found.tensors.items():
        if "/" in name:
            assert value.tobytes() == before[-1][name].tobytes(), name
            continue
        total = np.zeros(value.shape, np.float64)
        for one in before:
            total += one[name]
        assert value.tobytes() == (total / 3).astype(np.float32).tobytes(), name
    assert found.tensors["head"].tobytes() == before[0]["head"].tobytes()  # frozen
    model = mc.load_run(target).model
    assert all(value.tobytes() == found.tensors[name].tobytes() for name, value in model.parameters.items())


def test_other_commands_read_the_result(run: TinyRun, tmp_path: Path) -> None:
    target = tmp_path / "mean"
    assert main(["average", str(run.workdir), "--last=2", f"--to={target}"]) == 0
    for words in (
        ["validate", str(target)],
        ["sample", str(target), "sample.max_tokens=2"],
        ["export", str(target), f"--to={tmp_path / 'exported'}"],
        ["report", str(target)],
        ["train", f"--workdir={target}"],  # all updates are done
    ):
        assert main(words) == 0, words


def test_the_default_folder_is_beside_the_run_however_it_is_named(
    run: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run.workdir, tmp_path / "run" / "in")
    for here, typed, shown in (
        (tmp_path, "run/in", "run/in-average"),
        (tmp_path / "run" / "in", ".", str(tmp_path / "run" / "in-average")),
        (tmp_path / "run" / "in" / "checkpoints", "..", str(tmp_path / "run" / "in-average")),
    ):
        monkeypatch.chdir(here)
        assert main(["average", typed, "--last=1"]) == 0
        assert f" in {shown}; to use it:\n" in capsys.readouterr().out
        shutil.rmtree(tmp_path / "run" / "in-average")


def test_one_checkpoint_is_its_own_average(run: TinyRun, tmp_path: Path) -> None:
    assert main(["average", str(run.workdir), "--last=1", f"--to={tmp_path / 'one'}"]) == 0
    found, wanted = (
        load_step(folder / "checkpoints", 6).tensors for folder in (tmp_path / "one", run.workdir)
    )
    assert all(value.tobytes() == wanted[name].tobytes() for name, value in found.items())


def test_mistakes(run: TinyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*words: str, code: int = 2) -> str:
        assert main(["average", *words]) == code
        return capsys.readouterr().err

    folder = str(run.workdir)
    assert "[average] RUN is missing; type: " in refused()
    told = refused(folder, "--last=4")
    assert "--last: expected at most 3, the checkpoints of" in told and "train.keep_last=4" in told
    assert "at least 1" in refused(folder, "--last=0")
    assert "expected a new folder, got" in refused(folder, "--last=2", f"--to={tmp_path}")
    damaged = tmp_path / "damaged"
    assert main(["average", folder, "--last=3", f"--to={damaged}"]) == 0
    capsys.readouterr()
    file = next((damaged / "checkpoints" / "step-6").glob("model-*"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    assert file.name in refused(str(damaged), "--last=1", f"--to={tmp_path / 'never'}", code=65)
    assert not (tmp_path / "never").exists()


def test_a_run_with_too_few_checkpoints_says_so(
    run: TinyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = tmp_path / "one"
    shutil.copytree(run.workdir, one)
    for step in (2, 4):
        shutil.rmtree(one / "checkpoints" / f"step-{step}")
    assert main(["average", str(one), f"--to={tmp_path / 'mean'}"]) == 2
    told = capsys.readouterr().err
    assert f"{one} has only the checkpoint of step 6, and a mean needs at least two" in told
    assert "train.keep_last=5" in told and "--last" not in told


def test_compare_says_that_an_average_is_a_mean(
    run: TinyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mean = tmp_path / "mean"
    assert main(["average", str(run.workdir), "--last=2", f"--to={mean}"]) == 0
    assert main(["compare", str(run.workdir), str(mean)]) == 0
    shown = capsys.readouterr().out
    assert "mean of checkpoints up to step 6" in shown
    assert "none, since its weights are a mean of checkpoints" in shown and "not ended" not in shown
