"""Commands in MaxText's grammar, from their arguments to their exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from maxtext_commands import run
from mudd_core.cli import main
from printed_hints import commands, require_sample_command_works
from tiny_run import ROOT

SIZES = """
    model_name=LlamaMedium base_emb_dim=16 base_num_query_heads=2 base_num_kv_heads=2 head_dim=8 base_mlp_dim=32
    base_num_decoder_layers=1 vocab_size=257 max_target_length=9 per_device_batch_size=2 steps=4
    eval_per_device_batch_size=2 learning_rate_schedule_steps=-1 checkpoint_period=2 eval_interval=4 keep_period=None
    record_internal_nn_metrics=0 eval_loop_num_batches=1 =1
"""


@pytest.fixture
def words(tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a command on the text of all tiny runs, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yml").write_text("base_config: base_v2.yml\ndataset_type: synthetic\nrun_name: mine\n")
    data = (f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}", "data.tokenizer=bytes")
    return ["own.yml", *SIZES.split(), "data.pipeline=text", *data]


def test_a_command_trains_resumes_and_validates(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "train.stop_at=2"]) == 75
    stopped = capsys.readouterr()
    assert "launch.py own.yml model_name=LlamaMedium" in stopped.out.replace("\n", " ")
    assert stopped.err.count("an argument without a name is ignored") == 1
    assert "from arguments: " in stopped.out and "from base_v2.yml: " in stopped.out
    assert main([*words, "train.stop_at=0"]) == 0
    trained = capsys.readouterr()
    assert "completed step: 4," in trained.out and "completed step: 2," not in trained.out
    saved = json.loads((tmp_path / "mine" / "config.json").read_text())
    assert saved["train"]["steps"] == 4 and saved["log"]["style"] == "maxtext"
    require_sample_command_works(trained.out)
    capsys.readouterr()
    assert main(words) == 0
    again = capsys.readouterr().out
    assert "is finished." in again
    require_sample_command_works(again)
    capsys.readouterr()
    assert main([*words, "only_eval=True"]) == 0
    evaluated = capsys.readouterr().out.splitlines()
    assert evaluated[0].startswith("eval_step: 1 ") and evaluated[-1].startswith("step 4: validation loss ")
    assert main([*words, "adam_b1=0.5"]) == 2
    assert "optim.beta1: saved 0.9, asked 0.5" in capsys.readouterr().err


def test_printed_commands_work_in_the_same_folder_without_the_variables(
    words: list[str], tmp_path: Path
) -> None:
    variables = {"STEPS": "3", "METRICS_FILE": "a file.jsonl"}
    typed = [word for word in words if not word.startswith("steps=")]
    stopped = run([*typed, "train.stop_at=2"], tmp_path, variables, code=75)
    (line,) = [line.strip() for line in stopped if "own.yml" in line and "launch.py" in line]
    assert line.startswith("env 'M_METRICS_FILE=a file.jsonl' M_STEPS=3 "), line
    ended = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == 0 and "completed step: 3," in ended.stdout, ended.stdout + ended.stderr
    assert (tmp_path / "a file.jsonl").is_file()
    for name in ("sample", "report"):
        (command,) = commands(ended.stdout, name)
        used = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )
        assert used.returncode == 0, command + used.stderr


def test_a_refused_command_leaves_no_folder(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "stepz=4"]) == 2
    assert "did you mean 'steps'?" in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.parametrize("name", ["train.steps", "steps"])
def test_explain_says_value_default_file_and_argument(
    name: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--explain", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "train.steps = 4" in lines
    assert [line.split()[1] for line in lines[-3:]] == ["10000000", lines[-2].split()[1], "steps=4"]
    assert lines[-2].endswith("configs/muddformer/base_v2.yml")
    assert not Path("runs").exists()


def test_explain_names_a_variable_that_sets_a_key(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [word for word in words if not word.startswith("steps=")]
    monkeypatch.setenv("M_STEPS", "5")
    assert main([*kept, "--explain", "steps"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["  environment  M_STEPS=5", "  argument     -"] and "train.steps = 5" in lines


def test_explain_names_the_variable_that_sets_the_threads(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert main(["--config=tiny.py", "--explain=train.threads"]) == 0
    assert "  environment  OMP_NUM_THREADS=1\n" in capsys.readouterr().out
    assert main(["--config=tiny.py", "--explain=train.threads", "train.threads=2"]) == 0
    assert "environment" not in capsys.readouterr().out


def test_explain_of_a_config_of_our_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config=muddformer/tiny.py", "--explain=optim.lr", "optim.lr=0.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0] == "optim.lr = 0.5"
        and lines[1] == "  default      0.001"
        and lines[3] == "  argument     optim.lr=0.5"
    )
    assert lines[2].endswith("configs/muddformer/tiny.py")
    assert main(["--config=muddformer/tiny.py", "--explain=optim.momentun"]) == 2
    assert "optim.momentum" in capsys.readouterr().err


def test_ranks_train_by_the_same_command(words: list[str], tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "launch.py"), "--ranks=2", *words, "train.stop_at=2"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 75 and "--ranks=2 own.yml" in ended.stdout, ended.stderr
