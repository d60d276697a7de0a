"""validate --split=test: the sequences after the validation sequences, or the test split of a data set folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mu_commands import resolved
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.config import Config, load_config
from mudd_core.data import pipelines
from mudd_core.data.pipelines import RowShape

SHAPE = RowShape(16, 2, 0)


def _written(file: Path, texts: list[str]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return file


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _written(tmp_path_factory.mktemp("one") / "a.jsonl", [f"{number} words" for number in range(440)])


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("three") / "set"
    for split, count in (("train", 40), ("validation", 8), ("test", 6)):
        _written(folder / split / "a.jsonl", [f"{split} {number}" for number in range(count)])
    return folder


def _words(place: Path, *words: str) -> list[str]:
    named = "dataset" if place.is_dir() else "path"
    return [
        "data.pipeline=rows",
        f"data.{named}={place}",
        f"data.cache_dir={place.parent}/cache",
        "data.tokenizer=bytes",
        "model.vocab_size=300",
        "model.d_model=16",
        "model.n_layer=1",
        "model.n_head=2",
        "model.d_ff=32",
        "train.steps=2",
        "train.batch_size=2",
        "train.seq_len=16",
        "train.logical_shards=2",
        "train.threads=1",
        "eval.max_batches=1",
        *words,
    ]


def _config(place: Path, *words: str) -> Config:
    return load_config("tiny.py", _words(place, *words))


def _texts_of(config: Config) -> list[str]:
    """Return the documents in the test sequences."""
    prepared = pipelines.prepare(config, progress=lambda *_: None)
    rows = pipelines.test_rows(config, prepared, SHAPE)
    arrays = rows.arrays(0, rows.rows)
    assert prepared.tokenizer is not None
    kept = [np.asarray(row)[np.asarray(row) != prepared.tokenizer.eos_id] for row in arrays["targets"]]
    return [prepared.tokenizer.decode([int(token) for token in row if token >= 0]) for row in kept]


@pytest.mark.parametrize("cache", ["full", "stream"])
def test_it_is_the_second_hundred_batches(texts: Path, cache: str) -> None:
    config = _config(texts, f"data.cache={cache}")
    assert _texts_of(config) == [f"{number} words" for number in range(200, 400)]


@pytest.mark.parametrize("words", [[], ["data.cache=stream"], ["data.tokenizer=bpe", "data.vocab_size=260"]])
def test_a_given_test_split_is_taken_whole(splits: Path, words: list[str]) -> None:
    assert _texts_of(_config(splits, *words)) == [f"test {number}" for number in range(6)]


def test_data_without_a_test_split_say_so(texts: Path, tmp_path: Path) -> None:
    valid = _written(tmp_path / "v.jsonl", ["some words"] * 8)
    for cache in ("full", "stream"):
        with pytest.raises(UserError, match=r"data.eval_path\] --split=test: expected a data.dataset"):
            _texts_of(_config(texts, f"data.eval_path={valid}", f"data.cache={cache}"))
    with pytest.raises(UserError, match=r"data.pipeline\] --split=test: expected data.pipeline=rows"):
        _texts_of(_config(texts, "data.pipeline=blocks"))


def test_the_command_measures_on_it(texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = f"--workdir={tmp_path / 'run'}"
    assert main(["--config=tiny.py", run, *_words(texts)]) == 0
    assert main(["validate", run, "--split=test"]) == 0
    told = capsys.readouterr().out
    assert (
        "step 2: test loss" in told
        and f"{sum(len(f'{n} words') + 1 for n in range(200, 400)):,} targets" in told
    )
    assert main(["validate", run, "--split=valid"]) == 0
    assert "step 2: validation loss" in capsys.readouterr().out
    assert main(["validate", run, "--split=train"]) == 2
    assert "--split: expected valid or test, got 'train'" in capsys.readouterr().err


@pytest.mark.parametrize("micro", [1, 2])
@pytest.mark.parametrize("cache", ["full", "stream"])
def test_accumulated_batches_leave_the_held_out_documents(tmp_path: Path, cache: str, micro: int) -> None:
    file = _written(tmp_path / "a.jsonl", [f"{number} words" for number in range(840)])
    keys = {
        "tokens_per_global_batch": 64,
        "sequence_len": 16,
        "hfds_buffer_size": 4,
        "grad_acc_steps": micro,
        "n_pretrain_step": 4,
        "n_warmup_step": 2,
        "n_print_step": 2,
        "n_save_step": 2,
    }
    words = [f"data.path={file}", f"data.cache_dir={tmp_path}", "data.tokenizer=bytes", "model.vocab_size=0"]
    words += ["data.pipeline=rows", f"data.cache={cache}"]
    config = resolved(*(f"{name}={value}" for name, value in keys.items()), *words).config
    assert config.train.batch_size == 4 * micro
    shape = RowShape(16, 4 * micro, 0)
    prepared = pipelines.prepare(config, progress=lambda *_: None)
    train = prepared.rows("train", shape)
    found = {"train": train, "valid": prepared.rows("valid", shape)}
    found["test"] = pipelines.test_rows(config, prepared, shape)
    assert prepared.tokenizer is not None
    firsts = {}
    for split, rows in found.items():
        row = rows.arrays(0, 4 * micro)["targets"][0]
        firsts[split] = prepared.tokenizer.decode(
            [int(i) for i in row if 0 <= i != prepared.tokenizer.eos_id]
        )
    assert firsts == {"train": "800 words", "valid": "0 words", "test": "400 words"}
    assert found["valid"].rows == found["test"].rows == 400
