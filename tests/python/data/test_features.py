"""Data sets of ready-made features: used unchanged, validated up to the last record, and checked."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest

from id_cases import (
    BATCH,
    LENGTH,
    config_of,
    write_feature_rows,
)
from mudd_core.base.errors import FormatError, UserError
from mudd_core.data.pipelines import RowShape, prepare
from mudd_core.run.build.rows import validation_batches


def test_features_are_taken_as_they_stand(tmp_path: Path) -> None:
    tables = [write_feature_rows(tmp_path / "d" / f"train-{n}-of-2", 5) for n in range(2)]
    held = write_feature_rows(tmp_path / "d" / "validation-0-of-1", 6)
    data = prepare(config_of("features", tmp_path / "d", "data.eval_match=validation"))
    train, valid = (data.rows(split, RowShape(LENGTH, BATCH, 0)) for split in ("train", "valid"))
    assert (train.rows, valid.rows, train.batches(3)) == (8, 6, 6)
    ids = (tables[0]["input_ids"] + tables[1]["input_ids"])[:8]
    got = train.arrays(0, 12)
    assert got["inputs"].tolist() == ids + ids[:4]
    labels = (tables[0]["labels"] + tables[1]["labels"])[:8]
    assert got["targets"][:8].tolist() == [[-1 if i < 0 else i for i in r] for r in labels]
    assert got["key_mask"].tolist() == [[1] * 5 + [0] * 3] * 12
    assert valid.arrays(0, 6)["inputs"].tolist() == held["input_ids"]
    assert (valid.arrays(6, 1)["targets"] == -1).all()
    with pytest.raises(UserError, match=r"train\.seq_len: expected the 8 ids"):
        data.rows("train", RowShape(4, BATCH, 0))
    kept = next((tmp_path / "d-cache").glob("features-*/train.npy"))
    changed = bytearray(kept.read_bytes())
    changed[200] ^= 1
    kept.write_bytes(changed)
    with pytest.raises(FormatError, match="do not match their checksum"):
        prepare(config_of("features", tmp_path / "d", "data.eval_match=validation"))


@pytest.mark.parametrize("count", [1, 7, 12])
@pytest.mark.parametrize("size", [1, 4, 5, 12, 0])
def test_all_rows_of_features_validate(tmp_path: Path, count: int, size: int) -> None:
    write_feature_rows(tmp_path / "d" / "train-0", 10)
    held = write_feature_rows(tmp_path / "d" / "validation-0", count)
    words = (
        "data.eval_match=validation",
        "train.batch_size=8",
        f"eval.batch_size={size}",
        "eval.max_batches=0",
    )
    config = config_of("features", tmp_path / "d", *words)
    data = prepare(config)
    batches = list(validation_batches(config, data))
    assert len(batches) == -(-count // (size or 8))
    assert {len(batch["inputs"]) for batch in batches} == {size or 8}
    targets = np.concatenate([batch["targets"] for batch in batches])
    assert targets[:count].tolist() == [[max(i, -1) for i in row] for row in held["labels"]]
    assert (targets[count:] == -1).all()
    assert data.rows("train", RowShape(LENGTH, 8, 0)).rows == 8  # training drops the last two


def test_the_rule_of_jax_lm_drops_the_part_batch_of_a_validation(tmp_path: Path) -> None:
    write_feature_rows(tmp_path / "d" / "train-0", 8)
    write_feature_rows(tmp_path / "d" / "validation-0", 7)
    words = (
        "data.eval_match=validation",
        "train.batch_size=8",
        "eval.protocol=features",
        "eval.max_batches=0",
    )
    config = config_of("features", tmp_path / "d", *words, "eval.batch_size=3")
    assert len(list(validation_batches(config, prepare(config)))) == 2
    config = config_of("features", tmp_path / "d", *words)
    with pytest.raises(
        UserError, match=r"expected at least 8 rows for validation, got 7; lower eval\.batch_size"
    ):
        list(validation_batches(config, prepare(config)))


def test_rows_of_unequal_length_are_refused(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    good = '{"input_ids": [1, 2], "attention_mask": [1, 1], "labels": [2, -100]}\n'
    (tmp_path / "v.jsonl").write_text(good)
    longer = '{"input_ids": [1, 2, 3], "attention_mask": [1, 1, 1], "labels": [2, 3, -100]}\n'
    for bad, reason in (
        (good.replace("[1, 2]", "[1, 2, 3]"), "lists of one length"),
        (longer, "rows of 2 ids"),
    ):
        (tmp_path / "d" / "a.jsonl").write_text(good + bad)
        with pytest.raises(FormatError, match=reason):
            prepare(config_of("features", tmp_path / "d", f"data.eval_path={tmp_path}/v.jsonl"))
    assert not list((tmp_path / "d-cache").glob("features-*/*"))


def test_an_edit_in_the_middle_of_feature_rows_does_not_go_unnoticed(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = tmp_path / "rows"

    def write(first: int) -> None:
        ids = np.arange(20000 * LENGTH).reshape(20000, LENGTH) % 97
        ids[10000, 0] = first
        table = pa.table(
            {"input_ids": ids.tolist(), "attention_mask": (ids * 0 + 1).tolist(), "labels": ids.tolist()}
        )
        folder.mkdir(exist_ok=True)
        pq.write_table(
            table, folder / "a.parquet", use_dictionary=False, compression="none", write_statistics=False
        )

    write(5)
    write_feature_rows(folder / "val_x.parquet", 8)
    config = config_of("features", folder, "data.eval_match=val_x")
    made = prepare(config)
    size = (folder / "a.parquet").stat().st_size
    write(6)
    assert (folder / "a.parquet").stat().st_size == size
    with pytest.raises(FormatError, match=r"a\.parquet.* was edited"):
        prepare(config)
    assert prepare(config, fingerprint=made.fingerprint).documents == made.documents
    write(5)
    assert prepare(config).fingerprint == made.fingerprint


def test_data_that_are_dropped_close_their_files(tmp_path: Path) -> None:
    """A notebook that trains again and again keeps no descriptors."""
    for name in ("train-0-of-1", "validation-0-of-1"):
        write_feature_rows(tmp_path / "d" / name, 8)
    config = config_of("features", tmp_path / "d", "data.eval_match=validation")
    prepare(config).rows("train", RowShape(LENGTH, BATCH, 0)).arrays(0, 1)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        prepare(config).rows("train", RowShape(LENGTH, BATCH, 0)).arrays(0, 1)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
