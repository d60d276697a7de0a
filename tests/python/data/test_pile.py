"""The Pile's pipeline, compared with plain loops: files, groups, complete batches and the shuffle buffer."""

from __future__ import annotations

from pathlib import Path

import pytest

from id_cases import (
    BATCH,
    LENGTH,
    config_of,
    lists,
    write_records,
)
from mudd_core.base.errors import UserError
from mudd_core.data.pipelines import RowShape, prepare
from mudd_core.run.build.rows import validation_batches


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
    """Check that validation is like training; epochs of data.epochs repeat if eval.max_batches limits the
    validation.
    """
    folder, files = pile
    names = [f"pile.tfrecord.b{n}" for n in (0, 10, 2)]  # in the order of a directory listing
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
