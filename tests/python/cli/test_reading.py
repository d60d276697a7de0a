"""Commands that read a run take its saved config: a run trained with overrides needs none of them again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mudd_core import cli
from mudd_core.interop import export_command
from mudd_core.tools import mix_weights
from tiny_run import CONFIG, TinyRun

NAME = "tiny_run"  # of the config: its default folder is runs/tiny_run
OWN = ("train.steps=3", "train.batch_size=4", "train.seed=7", "optim.lr=0.002")


@pytest.fixture(scope="module")
def trained(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs/<name of the config>, trained with overrides."""
    folder = tmp_path_factory.mktemp("overridden")
    run = TinyRun(folder / "run", tiny_text, OWN)
    assert run.finish() == 0, run.tail
    (folder / "runs").mkdir()
    run.workdir.rename(folder / "runs" / NAME)
    return folder


@pytest.mark.parametrize("which", [f"--config={CONFIG}", f"--workdir=runs/{NAME}"])
def test_reading_commands_need_no_override_again(
    trained: Path, which: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(trained)
    assert cli.main(["sample", which, "--prompt", "tree ", "--max-tokens=3"]) == 0
    assert cli.main(["validate", which]) == 0
    assert cli.main(["report", which]) == 0
    printed = capsys.readouterr().out
    assert "tree " in printed and "step 3: validation loss" in printed and "batch_size=4" in printed
    with pytest.raises(Exception, match="expected a MUDDFormer"):  # it came as far as the model
        mix_weights.main([which])
    out = trained / "exported"
    assert export_command.main([which, f"--to={out}", "train.threads=1"]) == 0
    shutil.rmtree(out)


def test_of_a_saved_run_only_what_may_change_on_resume_changes(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(trained)
    assert cli.main(["report", f"--config={CONFIG}", "eval.batch_size=5", "train.seed=7"]) == 0
    assert "eval: max_batches=2 batch_size=5" in capsys.readouterr().out
    assert cli.main(["sample", f"--config={CONFIG}", "train.seed=1"]) == 2
    told = capsys.readouterr().err
    assert "train.seed: saved 7, asked 1" in told and "leave these arguments out" in told
    assert cli.main(["sample", f"--config={CONFIG}", "name=other"]) == 2
    assert "runs/other holds no run" in capsys.readouterr().err
    assert cli.main(["sample", f"--workdir=runs/{NAME}", "--config=smal.py"]) == 2
    assert "did you mean 'small.py'" in capsys.readouterr().err
    assert cli.main(["sample", f"--config={CONFIG}", f"--workdri=runs/{NAME}"]) == 2
    assert "did you mean '--workdir'" in capsys.readouterr().err
