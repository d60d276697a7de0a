"""The commands that a run prints about itself can be pasted back."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from mudd_core.cli import argv, main, same_run
from mudd_core.cli.requested import request_of

STOP = "train.stop_at"


def test_the_command_line_can_be_pasted_back() -> None:
    words = ["--config=tiny.py", "--workdir=my runs/x", "train.steps=9", "--config.data.path", "a b"]
    request = request_of(argv.parse(words))
    text = same_run.command_line(request)
    shell = subprocess.run(
        ["sh", "-c", f'set -- {text}; shift 2; printf "%s\\n" "$@"'], capture_output=True, text=True
    )
    again = request_of(argv.parse(shell.stdout.splitlines()))
    assert (again.command, again.options, again.words) == ("train", request.options, request.words)


def _going_on(words: list[str], reason: str = STOP) -> list[str]:
    line = shlex.split(same_run.to_go_on(request_of(argv.parse(words)), reason, 1))
    return line[line.index(words[0]) :]


@pytest.mark.parametrize(
    "words",
    [
        "train.stop_at=3",
        "--train.stop_at=3",
        "--stop_at 3",
        "--stop-at=3",
        "++train.stop_at=3",
        "--config.train.stop_at 3",
    ],
)
def test_a_stop_that_is_reached_is_not_typed_again(words: str) -> None:
    typed = ["--config=tiny.py", "train.steps=9", *words.split(), "optim.lr=0.1"]
    assert _going_on(typed) == ["--config=tiny.py", "train.steps=9", "optim.lr=0.1"]
    assert _going_on(typed, "SIGTERM") == typed  # the signal has not come yet


def test_a_stop_of_a_file_is_set_to_zero() -> None:
    assert _going_on(["--config=tiny.py"]) == ["--config=tiny.py", "train.stop_at=0"]


def test_a_stop_beside_another_programs_flags() -> None:
    typed = ["--model-config-name", "gpt2", "--stop_at", "3", "train.threads=1"]
    assert _going_on(typed) == ["--model-config-name", "gpt2", "train.threads=1"]


def test_the_printed_command_goes_on(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--config=tiny.py",
        f"--workdir={tmp_path / 'run'}",
        f"data.path={tiny_text}",
        "data.tokenizer=bytes",
        f"data.cache_dir={tiny_text.parent / 'cache'}",
        "model.d_model=16",
        "model.n_layer=1",
        "model.n_head=2",
        "model.d_ff=32",
        "train.steps=3",
        "train.batch_size=2",
        "train.seq_len=16",
        "train.logical_shards=2",
        "train.threads=1",
        "eval.max_batches=1",
        "sample.max_tokens=1",
    ]
    assert main([*words, "train.stop_at=2"]) == 75
    told = capsys.readouterr().out
    line = shlex.split(told[told.index("to resume:") :].splitlines()[1])
    assert main(line[line.index(words[0]) :]) == 0
    assert "done: 3 steps" in capsys.readouterr().out
