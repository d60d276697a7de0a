"""Data of token ids with fewer different ids than bytes: characters, DNA, music."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudd_core.cli import main

READER = """
import random

def reader(path):
    draw = random.Random(1)
    for _ in range(300):
        yield [draw.randrange({ids}) for _ in range(17)]
"""


@pytest.mark.parametrize(("pipeline", "ids"), [("reader", 4), ("reader", 2), ("synthetic", 3)])
def test_small_vocabularies_are_planned_trained_and_validated(
    pipeline: str, ids: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bases.py"
    file.write_text(READER.format(ids=ids))
    data = ["data.pipeline=synthetic"]
    if pipeline == "reader":
        data = [
            f"data.pipeline={file}:reader",
            f"data.path={tmp_path}",
            f"data.cache_dir={tmp_path / 'cache'}",
        ]
    words = [
        "--config=tiny.py",
        *data,
        f"model.vocab_size={ids}",
        "model.d_model=16",
        "model.n_layer=1",
        "model.n_head=2",
        "model.d_ff=32",
        "train.seq_len=16",
        "train.batch_size=2",
        "train.steps=2",
        "train.eval_every=2",
        "eval.max_batches=2",
        "train.logical_shards=2",
        f"--workdir={tmp_path / 'run'}",
    ]
    assert main([*words, "--plan"]) == 0
    assert main(words) == 0
    assert main(["validate", f"--workdir={tmp_path / 'run'}"]) == 0
    assert "validation loss" in capsys.readouterr().out


def test_one_id_is_too_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bases.py"
    file.write_text(READER.format(ids=1))
    words = [f"data.pipeline={file}:reader", f"data.path={tmp_path}", f"data.cache_dir={tmp_path}/cache"]
    assert main(["--config=tiny.py", *words, "model.vocab_size=1", f"--workdir={tmp_path / 'run'}"]) == 2
    assert "expected the vocabulary size, at least 2, for a reader of ids" in capsys.readouterr().err
