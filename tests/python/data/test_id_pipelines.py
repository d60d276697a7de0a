"""The pipelines of ready ids: rows against plain loops, order, ends, stops and resumes, bad input."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from id_cases import (
    BATCH,
    LENGTH,
    VOCAB,
    config_of,
    lists,
    made,
    write_feature_rows,
    write_indexed,
    write_records,
)
from mudd_core.base.errors import FormatError, UserError
from mudd_core.data.pipelines import RowShape, prepare
from mudd_core.data.pipelines.megatron_maps import epochs_for, window_starts
from mudd_core.run.build.rows import validation_batches
from mudd_core.run.loop.trainer import Trainer
from rank_runs import on_ranks


@pytest.fixture(scope="module")
def pile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[list[int]]]]:
    folder = tmp_path_factory.mktemp("pile") / "data"
    files = {f"pile.tfrecord.b{n}": lists(count, 3, 14) for n, count in ((0, 9), (2, 7), (10, 6))}
    files["val_x.tfrecord"] = lists(5, 3, 14)
    for name, records in files.items():
        write_records(folder / name, records)
    return folder, files


def row(record: list[int]) -> list[int]:
    return (record + [0] * (LENGTH + 1))[: LENGTH + 1]


@pytest.mark.parametrize(("group", "epochs"), [(0, 2), (1, 1), (2, 3), (3, 2)])
def test_pile_follows_files_groups_and_whole_batches(
    pile: tuple[Path, dict[str, list[list[int]]]], group: int, epochs: int
) -> None:
    folder, files = pile
    words = (f"data.files_per_group={group}", "data.eval_match=val_x", "data.format=tfrecord")
    rows = prepare(config_of("pile", folder, *words)).rows("train", RowShape(LENGTH, BATCH, 0))
    order = ["pile.tfrecord.b0", "pile.tfrecord.b2", "pile.tfrecord.b10"] * epochs
    size = group or len(order)
    expected: list[list[int]] = []
    for first in range(0, len(order), size):
        records = [row(r) for name in order[first : first + size] for r in files[name]]
        expected += records[: len(records) // BATCH * BATCH]
    assert rows.batches(epochs) * BATCH == len(expected)
    got = rows.arrays(0, len(expected))
    assert got["inputs"].tolist() == [r[:-1] for r in expected]
    assert got["targets"].tolist() == [[i or -1 for i in r[1:]] for r in expected]


def test_pile_counts_id_zero_where_asked_and_validates_all_records(
    pile: tuple[Path, dict[str, list[list[int]]]],
) -> None:
    folder, files = pile
    words = ("data.eval_match=val_x", "data.zero_loss=true", "data.format=tfrecord", "eval.protocol=pile")
    rows = prepare(config_of("pile", folder, *words)).rows("valid", RowShape(LENGTH, BATCH, 0))
    assert rows.rows == 5
    got = rows.arrays(0, 8)
    assert got["targets"].tolist() == [row(r)[1:] for r in files["val_x.tfrecord"]] + [[-1] * LENGTH] * 3


@pytest.mark.parametrize(
    ("group", "epochs", "limit"), [(0, 1, 9), (1, 1, 9), (2, 1, 9), (2, 2, 9), (1, 2, 0)]
)
def test_pile_validates_whole_batches_of_each_group(
    pile: tuple[Path, dict[str, list[list[int]]]], group: int, epochs: int, limit: int
) -> None:
    """As training does; passes of data.epochs are repeated where eval.max_batches bounds a validation."""
    folder, files = pile
    names = [f"pile.tfrecord.b{n}" for n in (0, 10, 2)]  # in the order of a listing
    words = (
        f"data.files_per_group={group}",
        f"data.epochs={epochs}",
        f"eval.max_batches={limit}",
        "eval.batch_size=5",
        f"data.eval_path={folder}/pile*.b*",
        "data.format=tfrecord",
    )
    config = config_of("pile", folder, *words)
    order = names * (epochs if limit else 1)
    size = group or len(order)
    expected: list[list[int]] = []
    for first in range(0, len(order), size):
        records = [row(r) for name in order[first : first + size] for r in files[name]]
        expected += records[: len(records) // 5 * 5]
    found = list(validation_batches(config, prepare(config)))
    assert all(batch["inputs"].shape == (5, LENGTH) for batch in found)
    whole = expected[: 5 * limit] if limit else expected
    assert [ids for batch in found for ids in batch["inputs"].tolist()] == [r[:-1] for r in whole]


def test_pile_without_a_whole_batch_has_no_validation_batches(
    pile: tuple[Path, dict[str, list[list[int]]]],
) -> None:
    words = ("data.eval_match=val_x", "data.format=tfrecord", "eval.batch_size=6")
    config = config_of("pile", pile[0], *words)
    with pytest.raises(UserError, match=r"eval\.batch_size.* of 6 .* got 5 records in all"):
        validation_batches(config, prepare(config))
    config = config_of("pile", pile[0], *words, "eval.protocol=pile")
    assert len(list(validation_batches(config, prepare(config)))) == 1


def test_a_buffer_shuffles_within_groups(pile: tuple[Path, dict[str, list[list[int]]]]) -> None:
    folder, _ = pile
    words = ("data.files_per_group=3", "data.eval_match=val_x", "data.format=tfrecord")
    shape = RowShape(LENGTH, 1, 5)
    plain = prepare(config_of("pile", folder, *words)).rows("train", shape).arrays(0, 22)["inputs"].tolist()
    rows = prepare(config_of("pile", folder, "data.buffer=4", *words)).rows("train", shape)
    first, second = (rows.arrays(at, 22)["inputs"].tolist() for at in (0, 22))
    assert sorted(first) == sorted(second) == sorted(plain)
    assert len({str(x) for x in (first, second, plain)}) == 3
    assert all(plain.index(r) <= at + 3 for at, r in enumerate(first))


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


def stream_windows(documents: list[list[int]], order: npt.NDArray[np.int32]) -> list[list[int]]:
    ids = [i for d in order for i in documents[d]]
    return [ids[k : k + LENGTH + 1] for k in range(0, len(ids) - LENGTH, LENGTH)]


@pytest.mark.parametrize("trial", range(40))
def test_window_starts_are_those_of_gpt_neox(trial: int) -> None:
    draw = np.random.default_rng(trial)
    sizes = draw.integers(0, 3 if trial % 3 == 0 else 30, draw.integers(1, 40)).astype(np.int32)
    sizes[0] += LENGTH + 2
    documents = draw.permutation(np.tile(np.arange(sizes.size), 2)).astype(np.int32)
    expected, at, offset = [[0, 0]], 0, 0  # the loop of its helper
    for _ in range((int(sizes[documents].sum()) - 1) // LENGTH):
        left = LENGTH + 1
        while left:
            length = int(sizes[documents[at]]) - offset
            left -= length
            if left <= 0:
                offset, left = offset + left + length - 1, 0
            else:
                at, offset = at + 1, 0
        expected.append([at, offset])
    assert window_starts(sizes, documents, LENGTH).tolist() == expected


def test_documents_are_shuffled_then_windows_by_one_random_state(tmp_path: Path) -> None:
    documents, held = lists(30, 0, 20), lists(9, 4, 20)
    write_indexed(tmp_path / "d" / "train", documents)
    write_indexed(tmp_path / "held", held)
    config = config_of("megatron", tmp_path / "d", f"data.eval_path={tmp_path}/held", "train.steps=20")
    rows = prepare(config).rows("train", RowShape(LENGTH, BATCH, 7))
    tokens = sum(map(len, documents))
    epochs = epochs_for(80, tokens, LENGTH)
    assert (epochs * tokens - 1) // LENGTH >= 80 > ((epochs - 1) * tokens - 1) // LENGTH
    draw = np.random.RandomState(7)
    order = np.tile(np.arange(30, dtype=np.int32), epochs)
    draw.shuffle(order)
    windows = stream_windows(documents, order)
    shuffled = np.arange(len(windows), dtype=np.uint32)
    draw.shuffle(shuffled)
    expected = [windows[k] for k in islice(cycle(shuffled), 100)]
    got = rows.arrays(0, 100)
    assert got["inputs"].tolist() == [w[:-1] for w in expected]
    assert got["targets"].tolist() == [w[1:] for w in expected]
    valid = prepare(config).rows("valid", RowShape(LENGTH, BATCH, 7))
    assert valid.arrays(0, valid.rows)["inputs"].tolist() == [
        w[:-1] for w in stream_windows(held, np.arange(9, dtype=np.int32))
    ]


@pytest.mark.parametrize(
    ("count", "ends"), [(49, (48, 49)), (81, (79, 81)), (100, (97, 100)), (1000, (969, 999))]
)
def test_documents_are_split_as_gpt_neox_does(count: int, ends: tuple[int, int], tmp_path: Path) -> None:
    """Each share of 969 : 30 : 1 is rounded, then every end moves by what that leaves over."""
    write_indexed(tmp_path / "d" / "x", [[n % VOCAB] * (LENGTH + 2) for n in range(count)])
    data = prepare(config_of("megatron", tmp_path / "d", "data.shuffle=off", "train.steps=1"))
    for split, first, last in (("train", 0, ends[0]), ("valid", ends[0], ends[1])):
        rows = data.rows(split, RowShape(LENGTH, 1, 0))  # type: ignore[arg-type]
        ids = np.repeat(np.arange(first, last) % VOCAB, LENGTH + 2)
        assert rows.rows == (ids.size - 1) // LENGTH
        assert rows.arrays(0, 1)["inputs"][0].tolist() == ids[:LENGTH].tolist()
        assert rows.arrays(rows.rows - 1, 1)["targets"][0][-1] == ids[rows.rows * LENGTH]


@pytest.mark.parametrize("sequences", [[[1] * 30] * 3, [[1] * 30] * 48 + [[]]])
def test_a_set_that_holds_no_ids_out_is_refused(sequences: list[list[int]], tmp_path: Path) -> None:
    write_indexed(tmp_path / "d" / "x", sequences)
    data = prepare(config_of("megatron", tmp_path / "d"))
    with pytest.raises(UserError, match=r"for valid, got 0 ids .* give data\.eval_path"):
        data.rows("valid", RowShape(LENGTH, BATCH, 0))


@pytest.mark.parametrize("pipeline", ["pile", "megatron", "ids", "features"])
def test_two_ranks_read_the_rows_of_one_process(pipeline: str, tmp_path: Path) -> None:
    config = made(pipeline, tmp_path / "d")

    def work(comm: Any) -> str:
        with Trainer(config, comm=comm) as trainer:
            return str(trainer.fit().final_hash)

    with Trainer(config, progress=None) as trainer:
        whole = str(trainer.fit().final_hash)
    assert set(on_ranks(work, 2)) == {whole}


@pytest.mark.parametrize("name", ["x", "x[1]"])
def test_maps_beside_the_data_set_are_read_and_checked(name: str, tmp_path: Path) -> None:
    documents = lists(20, 5, 20)
    write_indexed(tmp_path / "d" / name, documents)
    write_indexed(tmp_path / "held", documents)
    order = np.array([3, 1, 2, 0, 5], np.int32)
    sizes = np.array([len(d) for d in documents], np.int32)
    starts = window_starts(sizes, order, LENGTH).astype(np.int32)
    turned = np.arange(len(starts) - 1, dtype=np.uint32)[::-1]
    stem = f"{name}_train_indexmap_64ns_{LENGTH}sl_1234s_"
    maps = {"doc_idx": order, "sample_idx": starts, "shuffle_idx": np.ascontiguousarray(turned)}
    for part, values in maps.items():
        np.save(tmp_path / "d" / f"{stem}{part}.npy", values)
    config = config_of("megatron", tmp_path / "d", f"data.eval_path={tmp_path}/held")
    shape = RowShape(LENGTH, 1, 1234)
    windows = stream_windows(documents, order)
    got = prepare(config).rows("train", shape).arrays(0, len(windows))
    assert got["inputs"].tolist() == [w[:-1] for w in windows[::-1]]
    for part, wrong in (("doc_idx", order + 18), ("sample_idx", starts + 1), ("shuffle_idx", turned * 0)):
        np.save(tmp_path / "d" / f"{stem}{part}.npy", wrong)
        with pytest.raises(FormatError, match="the map is of another corpus"):
            prepare(config).rows("train", shape)
        np.save(tmp_path / "d" / f"{stem}{part}.npy", maps[part])


def test_items_in_training_order(tmp_path: Path) -> None:
    items, held = lists(10, LENGTH + 1, LENGTH + 2), lists(3, LENGTH + 1, LENGTH + 2)
    write_indexed(tmp_path / "d" / "x", items)
    with pytest.raises(UserError, match=r"data\.eval_path"):
        prepare(config_of("megatron", tmp_path / "d"))
    write_indexed(tmp_path / "held", held)
    data = prepare(config_of("megatron", tmp_path / "d", f"data.eval_path={tmp_path}/held"))
    got = data.rows("train", RowShape(LENGTH, BATCH, 7)).arrays(8, 4)
    assert got["inputs"].tolist() == [items[k % 10][:-1] for k in range(8, 12)]
    valid = data.rows("valid", RowShape(LENGTH, BATCH, 7))
    assert valid.rows == 3
    assert (valid.arrays(3, 1)["targets"] == -1).all()


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
    with pytest.raises(UserError, match="expected a batch of 4 rows"):
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
    with pytest.raises(FormatError, match=r"a\.parquet.* has been edited"):
        prepare(config)
    assert prepare(config, fingerprint=made.fingerprint).documents == made.documents
    write(5)
    assert prepare(config).fingerprint == made.fingerprint
