"""Sampling from runs on ids, with a named tokenizer or none; the hint at the end of a run."""

from __future__ import annotations

import math
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mudd_core.cli import main
from printed_hints import commands, sample_command
from tiny_run import ROOT

WORDS = [
    "--config=tiny.py",
    "model.d_model=16",
    "model.n_layer=1",
    "model.n_head=2",
    "model.d_ff=16",
    "train.steps=1",
    "train.batch_size=2",
    "train.seq_len=32",
    "sample.max_tokens=3",
    "--workdir=run",
]


def test_synthetic_ids_are_sampled_by_a_named_tokenizer_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*WORDS, "data.pipeline=synthetic", "model.vocab_size=300"]) == 0
    assert main([*WORDS, "data.pipeline=synthetic", "model.vocab_size=300"]) == 0  # finished
    assert "\nsample " not in capsys.readouterr().out
    assert main(["sample", "--workdir=run"]) == 2
    assert "--tokenizer=PATH" in capsys.readouterr().err
    assert main(["sample", "--workdir=run", "--tokenizer=bytes", "--prompt=ab"]) == 0
    assert capsys.readouterr().out.startswith("ab")
    assert main(["sample", "--workdir=run", "--tokenizer=nothing.json"]) == 2
    assert "nothing.json" in capsys.readouterr().err
    assert main(["report", "--workdir=run", "--tokenizer=bytes"]) == 2
    assert "[report] --tokenizer: expected the tokenizer of the validation ids" in capsys.readouterr().err
    assert main(["report", "--workdir=run"]) == 0
    assert "not finite" not in capsys.readouterr().out
    assert main(["export", "--workdir=run", "--to=plain"]) == 0
    assert "no tokenizer is exported" in capsys.readouterr().err and not Path("plain/tokenizer.json").exists()
    assert main(["export", "--workdir=run", "--to=named", "--tokenizer=bytes"]) == 0
    assert Path("named/tokenizer.json").is_file()


def test_report_says_why_there_are_no_bits_per_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("".join(f"The {i}th ship's captain left harbour.\n\n" for i in range(300)))
    data = ["data.path=text.txt", "data.tokenizer=bytes", "data.eval_path=text.txt", "eval.max_batches=2"]
    assert main([*WORDS, *data, "data.pipeline=pack"]) == 0
    capsys.readouterr()
    assert main(["report", "--workdir=run"]) == 0
    told = capsys.readouterr().out
    assert "     unknown\n" in told and "no text" not in told


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*WORDS, "data.pipeline=synthetic", "model.vocab_size=100"]) == 0
    for command in (["sample"], ["export", "--to=out"]):
        assert main([*command, "--workdir=run", "--tokenizer=bytes"]) == 2
        assert "--tokenizer: expected at most the model's 100 ids, got 257" in capsys.readouterr().err
    assert not Path("out").exists()


def test_report_has_bits_per_byte_by_a_named_tokenizer(tmp_path: Path) -> None:
    text = "".join(f"The {i}th ship's captain left harbour.\n" for i in range(300))
    Path(tmp_path, "ids.py").write_text(
        f"TEXT = {text!r}\n\ndef lines(path):\n    return (list(line.encode()) for line in TEXT.splitlines())\n"
    )
    Path(tmp_path, "notes.txt").write_text("ab")

    def launched(*words: str) -> str:
        command = [sys.executable, str(ROOT / "launch.py"), *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    launched(*WORDS, "data.pipeline=ids.py:lines", "data.path=notes.txt", "model.vocab_size=257")
    (row,) = [line.split() for line in launched("report", "--workdir=run").splitlines() if "unknown" in line]
    plain = launched("report", "--workdir=run", "--tokenizer=bytes")
    (named,) = [line.split() for line in plain.splitlines() if line.split()[:2] == row[:2]]
    assert float(named[2]) == pytest.approx(
        float(named[1]) / math.log(2), rel=0.06
    )  # differs only by the ends of documents


def test_the_hint_has_words_of_the_text_and_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("".join(f"The {i}th ship's captain left harbour.\n\n" for i in range(300)))
    assert main([*WORDS, "data.path=text.txt", "data.tokenizer=bytes"]) == 0
    (line,) = commands(capsys.readouterr().out, "sample")
    words = shlex.split(line)
    prompt = words[words.index("--prompt") + 1]
    assert prompt and prompt in Path("text.txt").read_text().replace("\n\n", " ")
    assert main(words[words.index("sample", 1) :]) == 0
    assert capsys.readouterr().out.startswith(prompt)
    assert main([*WORDS, "data.path=text.txt", "data.tokenizer=bytes"]) == 0  # finished
    (line,) = commands(capsys.readouterr().out, "sample")
    words = shlex.split(line)
    assert main(words[words.index("sample", 1) :]) == 0


@pytest.mark.parametrize("kind", ["text", "ids"])
def test_the_hint_of_a_registered_reader_works_in_a_new_process(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("ab")
    items = (
        "[i % 60, (i + 1) % 60, 3, 4, 5, 6, 7]" if kind == "ids" else "f'The {i}th ship left its harbour.'"
    )
    Path("mine.py").write_text(
        "import mudd_core as mc\n"
        f"def reader(path):\n    return ({items} for i in range(300))\n"
        "mc.data.register('hint_notes', reader)\n"
        "from mudd_core.config import read_config\n"
        "def get_config():\n    return read_config('tiny.py')\n"
    )
    run = ["--config=mine.py", *WORDS[1:], "data.pipeline=hint_notes", "data.path=notes.txt"]
    run += ["model.vocab_size=64"] if kind == "ids" else ["data.tokenizer=bytes"]
    for _ in range(2):  # the second command finds a finished run
        done = subprocess.run([sys.executable, str(ROOT / "launch.py"), *run], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        words = sample_command(done.stdout)
        assert (words is None) == (kind == "ids")
    if words is not None:
        command = [sys.executable, str(ROOT / "launch.py"), *words]
        assert subprocess.run(command, capture_output=True).returncode == 0
