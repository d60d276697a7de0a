"""Sampling from runs on ids: by a tokenizer that is named, or not at all; the hint at the end of a run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from mudd_core.cli import main

WORDS = ["--config=tiny.py", "model.d_model=16", "model.n_layer=1", "model.n_head=2", "model.d_ff=16", "train.steps=1",
         "train.batch_size=2", "train.seq_len=32", "sample.max_tokens=3", "--workdir=run"]  # fmt: skip


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
    assert main(["report", "--workdir=run"]) == 0
    assert "not finite" not in capsys.readouterr().out
    assert main(["export", "--workdir=run", "--to=plain"]) == 0
    assert "no tokenizer is exported" in capsys.readouterr().err and not Path("plain/tokenizer.json").exists()
    assert main(["export", "--workdir=run", "--to=named", "--tokenizer=bytes"]) == 0
    assert Path("named/tokenizer.json").is_file()


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*WORDS, "data.pipeline=synthetic", "model.vocab_size=100"]) == 0
    for command in (["sample"], ["export", "--to=out"]):
        assert main([*command, "--workdir=run", "--tokenizer=bytes"]) == 2
        assert "--tokenizer: expected at most the model's 100 ids, got 257" in capsys.readouterr().err
    assert not Path("out").exists()


def test_the_hint_has_words_of_the_text_and_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("".join(f"The {i}th ship's captain left harbour.\n\n" for i in range(300)))
    assert main([*WORDS, "data.path=text.txt", "data.tokenizer=bytes"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sample ")]
    words = shlex.split(line)
    prompt = words[words.index("--prompt") + 1]
    assert prompt and prompt in Path("text.txt").read_text().replace("\n\n", " ")
    assert main(words[words.index("sample", 1) :]) == 0
    assert capsys.readouterr().out.startswith(prompt)
    assert main([*WORDS, "data.path=text.txt", "data.tokenizer=bytes"]) == 0  # finished
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("sample ")]
    words = shlex.split(line)
    assert main(words[words.index("sample", 1) :]) == 0
