"""Values that a start fixes, such as the number of steps for epochs; a failed start leaves nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mudd_core.base.errors import UserError
from mudd_core.config import Config, load_config
from mudd_core.data.source_check import check_sources
from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.store.folder_lock import FolderLock
from mudd_core.run.store.run_folder import RunFolder
from tiny_run import CONFIG, TinyRun


def tiny(text: Path, *words: str) -> Config:
    data = (f"data.path={text}", f"data.cache_dir={text.parent / 'cache'}", "train.eval_every=0")
    return load_config(str(CONFIG), [*data, *words])


def test_epochs_become_steps_once_and_are_saved(tiny_text: Path, memory_path: Path) -> None:
    words = ("train.epochs=2", "train.batch_size=256", "train.seq_len=32", "train.save_every=0")
    with Trainer(tiny(tiny_text, *words, "train.stop_at=1"), memory_path / "run") as trainer:
        rows = trainer.engine.batcher.rows
        steps = trainer.config.train.steps
        assert steps == 2 * (rows // 256) > 2
        trainer.fit()
    assert json.loads((memory_path / "run" / "config.json").read_text())["train"]["steps"] == steps
    with Trainer(tiny(tiny_text, *words), memory_path / "run") as trainer:
        assert trainer.step_done == 1 and trainer.fit().step == steps
    with pytest.raises(UserError, match=r"train\.epochs: saved 2, asked 3"):
        Trainer(tiny(tiny_text, *words, "train.epochs=3"), memory_path / "run")


def test_epochs_need_rows_and_an_end(tiny_text: Path) -> None:
    with pytest.raises(UserError, match=r"\[train\.epochs\] expected at least a batch of 1000000 sequences"):
        Trainer(tiny(tiny_text, "train.epochs=1", "train.batch_size=1000000"))
    with pytest.raises(UserError, match=r"train\.epochs: data\.pipeline=synthetic has no end"):
        tiny(tiny_text, "train.epochs=1", "data.pipeline=synthetic")


def test_a_start_that_fails_leaves_no_folder_and_no_lock(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "STOP").write_text("")
    for name in ("new/run", "empty", "other"):
        FolderLock(RunFolder(tmp_path / name)).close()
    assert not (tmp_path / "new").exists()
    assert list((tmp_path / "empty").iterdir()) == []
    assert (tmp_path / "other" / "STOP").exists()


def test_a_command_that_cannot_start_leaves_an_empty_folder_empty(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    run = TinyRun(tmp_path / "run", tmp_path / "nothing")
    assert run.finish_here() == 2 and "data.path" in run.output
    assert list(run.workdir.iterdir()) == []


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("data.path=/nowhere/at/all", r"\[data\.path\].*/nowhere/at/all"),
        ("data.path=memory://bucket/none", r"\[data\.path\].*does not exist"),
        ("data.eval_path=/nowhere/*.txt", r"\[data\.eval_path\]"),
    ],
)
def test_a_plan_looks_for_the_data_as_a_start_would(word: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        check_sources(load_config("tiny.py", [word]))
    check_sources(load_config("tiny.py"))


def test_a_vocabulary_below_the_tokenizers_is_found_before_text_is_read() -> None:
    config = load_config("tiny.py", ["data.tokenizer=bytes", "model.vocab_size=200"])
    with pytest.raises(
        UserError, match=r"model\.vocab_size: expected at least 257, the size of the tokenizer, got 200"
    ):
        resolved_model(config, expected_vocabulary(config))
    larger = load_config("tiny.py", ["data.tokenizer=bytes", "model.vocab_size=300"])
    assert resolved_model(larger, expected_vocabulary(larger)).vocab_size == 300


def test_a_vocabulary_without_all_bytes_is_found_before_a_tokenizer_is_trained() -> None:
    with pytest.raises(
        UserError, match=r"model\.vocab_size: expected at least 257, the size of the tokenizer, got 256"
    ):
        config = load_config("tiny.py", ["model.vocab_size=256"])
        resolved_model(config, expected_vocabulary(config))
    # Smaller than data.vocab_size: a short text may have no more pairs to merge.
    smaller = load_config("tiny.py", ["model.vocab_size=257"])
    assert resolved_model(smaller, expected_vocabulary(smaller)).vocab_size == 257


def test_batch_size_is_that_of_training() -> None:
    config = load_config("tiny.py", ["--batch-size", "6"])
    assert (config.train.batch_size, config.eval.batch_size) == (6, 0)


def test_a_plan_of_data_that_are_not_there_is_refused(tmp_path: Path) -> None:
    run = TinyRun(tmp_path / "run", tmp_path / "nothing", ("--plan",))
    assert run.finish_here() == 2 and "[data.path]" in run.output
