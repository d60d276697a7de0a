"""Pipelines of token ids: ranks, order, wrong input, and files that change or reappear."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from id_cases import (
    BATCH,
    LENGTH,
    VOCAB,
    config_of,
    made,
    write_records,
)
from mudd_core.base.errors import FormatError, UserError
from mudd_core.data.pipelines import RowShape, prepare
from mudd_core.run.build.rows import validation_batches
from mudd_core.run.loop.trainer import Trainer
from rank_runs import on_ranks


@pytest.mark.parametrize("pipeline", ["pile", "megatron", "ids", "features"])
def test_two_ranks_read_the_rows_of_one_process(pipeline: str, tmp_path: Path) -> None:
    config = made(pipeline, tmp_path / "d")

    def work(comm: Any) -> str:
        with Trainer(config, comm=comm) as trainer:
            return str(trainer.fit().final_hash)

    with Trainer(config, progress=None) as trainer:
        whole = str(trainer.fit().final_hash)
    assert set(on_ranks(work, 2)) == {whole}


def test_bad_records_end_with_their_place(tmp_path: Path) -> None:
    words = ("data.eval_match=.v0", "data.format=tfrecord")
    shape = RowShape(LENGTH, 1, 0)
    write_records(tmp_path / "d" / "pile.tfrecord.v0", [[1, 2]])
    write_records(tmp_path / "d" / "pile.tfrecord.b0", [[1, VOCAB]])
    with pytest.raises(FormatError, match=f"record 0: expected ids from 0 to {VOCAB - 1}, got {VOCAB}"):
        prepare(config_of("pile", tmp_path / "d", *words)).rows("train", shape).arrays(0, 1)
    write_records(tmp_path / "d" / "pile.tfrecord.b0", [[1, 2]], "labels")
    with pytest.raises(FormatError, match="record 0 has no feature 'input_ids'"):
        prepare(config_of("pile", tmp_path / "d", *words)).rows("train", shape).arrays(0, 1)
    data = prepare(config_of("pile", tmp_path / "d", *words))
    with pytest.raises(UserError, match="expected a batch of 4 sequences"):
        data.rows("train", RowShape(LENGTH, BATCH, 0))
    unmatched = config_of("pile", tmp_path / "d", "data.format=tfrecord")
    with pytest.raises(UserError, match=r"data\.eval_path"):
        validation_batches(unmatched, prepare(unmatched))


@pytest.mark.parametrize(
    ("pipeline", "eval_file"),
    [("pile", "pile.tfrecord.b0"), ("megatron", "x"), ("ids", "a.bin"), ("features", "train-0")],
)
def test_validation_files_that_train_too_are_warned_of(pipeline: str, eval_file: str, tmp_path: Path) -> None:
    config = made(pipeline, tmp_path / "d")
    assert not [line for line in prepare(config).describe() if line.startswith("warning")]
    both = replace(config.data, eval_path=f"{tmp_path}/d/{eval_file}", eval_match="")
    lines = prepare(replace(config, data=both)).describe()
    assert any(line.startswith("warning") and "train" in line for line in lines), lines


def test_the_first_batch_again_and_again(tmp_path: Path) -> None:
    config = made("megatron", tmp_path / "d")
    with Trainer(replace(config, data=replace(config.data, repeat_batch=True)), progress=None) as trainer:
        rows = trainer.engine.batcher
        assert (rows.arrays(0, BATCH)["inputs"] == rows.arrays(3 * BATCH, BATCH)["inputs"]).all()
        trainer.step()


@pytest.mark.parametrize("pipeline", ["pile", "megatron", "ids"])
def test_files_that_come_back_are_read_again(pipeline: str, tmp_path: Path) -> None:
    config = made(pipeline, tmp_path / "d")
    data, shape = prepare(config), RowShape(LENGTH, BATCH, 0)
    first = data.rows("train", shape).arrays(0, BATCH)["inputs"]
    (tmp_path / "d").rename(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        data.rows("train", shape).arrays(0, BATCH)
    (tmp_path / "gone").rename(tmp_path / "d")
    assert (data.rows("train", shape).arrays(0, BATCH)["inputs"] == first).all()
