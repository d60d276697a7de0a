"""The time in a plan: its steps, and the fraction of peak that similar runs have reached."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from unittest import mock

import pytest

import mudd_core as mc
from launched import launched
from mudd_core import _core
from mudd_core.cli import main
from mudd_core.config import Config, to_dict
from mudd_core.run.build.plan_report import planned
from mudd_core.run.build.plan_time import fraction_of_peak, planned_steps
from mudd_core.run.store.run_folder import RunFolder
from tiny_run import CONFIG

ASSUMED = (0.5, "no run of this width and batch was measured yet, so half of the peak is assumed")


@pytest.fixture(autouse=True)
def _peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "peak_gflops", lambda threads, tries=20: 3.0)


def _run(folder: Path, config: Config, log: str = '{"step": 1}\n{"step": 2, "peak_share": 0.25}\n') -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(to_dict(config)))
    (folder / "metrics.jsonl").write_text(log)
    return folder


def test_a_run_of_the_same_width_and_batch_is_taken(tmp_path: Path) -> None:
    config = mc.load_config("tiny.py")
    run = _run(tmp_path / "run", config)
    told = f"measured by the run {run}, of the same width and batch"
    assert (
        fraction_of_peak(config, RunFolder(tmp_path / "next"))
        == fraction_of_peak(config, RunFolder(run))
        == (0.25, told)
    )
    assert f"25% of it\n                ({told})" in planned(config, RunFolder(tmp_path / "next")).text
    deeper = mc.load_config("tiny.py", ["model.n_layer=9", "train.steps=7", "optim.lr=0.1"])
    assert fraction_of_peak(deeper, RunFolder(tmp_path / "next")) == (0.25, told)


@pytest.mark.parametrize(
    "word", ["model.d_model=256", "train.batch_size=64", "train.seq_len=32", "train.precision=bf16"]
)
def test_a_run_of_another_shape_says_nothing(word: str, tmp_path: Path) -> None:
    _run(tmp_path / "run", mc.load_config("tiny.py"))
    assert fraction_of_peak(mc.load_config("tiny.py", [word]), RunFolder(tmp_path / "next")) == ASSUMED


def test_a_neighbours_damaged_files_are_passed_over(tmp_path: Path) -> None:
    config = mc.load_config("tiny.py")
    _run(tmp_path / "good", config)
    _run(tmp_path / "bad", config, '{"step"\n[]\n')
    _run(tmp_path / "none", config, "")
    (_run(tmp_path / "torn", config) / "config.json").write_text("{")
    (_run(tmp_path / "bare", config) / "config.json").unlink()
    # the newest runs are read first, so the others come before this one
    os.utime(tmp_path / "good" / "metrics.jsonl", (1, 1))
    for name in ("run", "bad", "none", "torn", "bare"):
        assert fraction_of_peak(config, RunFolder(tmp_path / name))[0] == 0.25


def test_passes_are_steps_as_soon_as_a_start_has_counted_the_rows(tmp_path: Path) -> None:
    config = mc.load_config("tiny.py", ["train.epochs=3"])
    assert planned_steps(config, RunFolder(tmp_path / "run")) is None
    text = planned(config, RunFolder(tmp_path / "run")).text
    assert "in all" not in text
    assert (
        "  steps         3 passes over the training sequences (train.epochs); the start of the run "
        "counts them"
    ) in text
    counted = dataclasses.replace(config, train=dataclasses.replace(config.train, steps=42))
    run = _run(tmp_path / "run", counted)
    assert planned_steps(config, RunFolder(run)) == 42
    assert (
        "steps  " not in planned(config, RunFolder(run)).text
        and " in all:" in planned(config, RunFolder(run)).text
    )
    assert planned_steps(mc.load_config("tiny.py", ["train.epochs=2"]), RunFolder(run)) is None
    assert planned_steps(mc.load_config("tiny.py", ["train.steps=9"]), RunFolder(run)) == 9


def test_a_plan_that_takes_long_says_so_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check the message before a plan that takes long: 10,000 blocks once took 91 s without any output."""
    text = tmp_path / "t.txt"
    text.write_text("some text\n" * 500)
    words = ["--plan", f"data.path={text}", "data.tokenizer=bytes", f"--workdir={tmp_path}/run"]
    sizes = ["model.d_model=8", "model.n_head=1", "model.d_ff=8", "train.seq_len=8"]
    assert main(["--config=tiny.py", *words, *sizes, "model.n_layer=2"]) == 0
    assert "planning" not in capsys.readouterr().err
    with mock.patch("mudd_core.run.build.plan_report._BLOCK_SECONDS", 3):
        assert main(["--config=tiny.py", *words, *sizes, "model.n_layer=2"]) == 0
    assert "note: planning 2 blocks takes about 6 s" in capsys.readouterr().err


def test_a_plan_warns_of_many_epochs_before_and_after_the_cache_is_built(
    tmp_path: Path, tiny_text: Path
) -> None:
    words = [f"--config={CONFIG}", f"data.path={tiny_text}", f"data.cache_dir={tmp_path / 'cache'}"]
    many = [*words, "--plan", "train.steps=100000"]
    before = " ".join(launched(tmp_path, *many).stdout.split())
    assert "WARNING: [data] the run reads" in before and "the text has only about" in before
    assert launched(tmp_path, "data", *words).returncode == 0
    after = " ".join(launched(tmp_path, *many).stdout.split())
    assert "WARNING: [data] the run reads" in after and "about" not in after.partition("WARNING")[2]
    few = launched(tmp_path, *words, "--plan", "train.steps=2")
    assert few.returncode == 0 and "WARNING" not in few.stdout
