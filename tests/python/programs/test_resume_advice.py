"""The commands that a rejected resume prints, typed exactly, for the grammars of three programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import documents
from document_sizes import OF_MU_TRANSFORMER, OF_MUDDFORMER, with_keys, write_lines, write_records, write_rows
from mudd_core.cli import main

Grammar = Callable[[Path], tuple[list[str], str]]


def maxtext(folder: Path) -> tuple[list[str], str]:
    """Return a command of MUDDFormer's document, and an argument that changes its run."""
    write_records(folder / "records")
    words = documents.commands("muddformer")[0].words
    return with_keys(words, f"{OF_MUDDFORMER} run_name=mudd"), "learning_rate=0.5"


def mu_transformer(folder: Path) -> tuple[list[str], str]:
    """Return a command of mu-Transformer's document, with plain text as data, and an argument that blocks a resume."""
    write_lines(folder / "text.jsonl", [f"document {i} " * 12 for i in range(80)])
    data = "data.path=text.jsonl data.tokenizer=bytes data.cache_dir=cache"
    sizes = " ".join(f"--config.{word}" for word in OF_MU_TRANSFORMER.split())
    words = documents.commands("mu_transformer")[0].words
    return with_keys(words, f"{sizes} {data} --workdir=w train.threads=1"), "--config.n_warmup_step=2"


def jax_lm(folder: Path) -> tuple[list[str], str]:
    """Return a training of jax-lm-training on records of ids, and an argument that changes its run."""
    write_rows(folder, 24)
    words = [
        "jax_lm.train",
        "--model-config-name",
        "model",
        "--train-dataset-paths",
        "rows.train*",
        "--eval-dataset-paths",
        "rows.test*",
        "--batch-size",
        "4",
        "--model-save-dir",
        "my run",
        "data.cache_dir=cache",
        "--num-epochs",
        "2",
        "train.threads=1",
    ]
    return words, "--random-seed=7"


@pytest.mark.parametrize("grammar", [maxtext, mu_transformer, jax_lm], ids=lambda grammar: grammar.__name__)
def test_the_printed_commands_resume_the_run_and_start_a_new_one(
    grammar: Grammar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words, changed = grammar(tmp_path)
    assert main([*words, "train.stop_at=2"]) == 75, capsys.readouterr().err
    capsys.readouterr()
    again = with_keys(tuple(words), changed)
    assert main([*again]) == 2
    told = capsys.readouterr().err.splitlines()
    printed = shlex.split(told[told.index("To resume it as it was:") + 1])
    first = next(i for i, word in enumerate(printed) if word.startswith("--workdir="))
    assert main([*printed[first:], "train.stop_at=0"]) == 0, capsys.readouterr().err
    run = Path(printed[first].partition("=")[2])
    steps = json.loads((run / "config.json").read_text())["train"]["steps"]
    assert json.loads((run / "summary.json").read_text())["steps"] == steps > 2
    place = next(i for i, line in enumerate(told) if line.endswith("To start a new run:"))
    new = shlex.split(told[place + 1])
    assert new[-1].startswith("--workdir=") and new[-1].endswith("-2")
    first = new.index(again[0])
    assert main([*new[first:], "train.stop_at=2"]) == 75, capsys.readouterr().err
    capsys.readouterr()
    assert main([*again]) == 2  # the first folder has the first run
    assert new[-1].replace("-2", "-3") in capsys.readouterr().err
