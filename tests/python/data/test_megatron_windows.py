"""Megatron's data sets: sequences, order, splits and maps are the same as in GPT-NeoX."""

from __future__ import annotations

from itertools import cycle, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from id_cases import (
    BATCH,
    LENGTH,
    VOCAB,
    config_of,
    lists,
    write_indexed,
)
from mudd_core.base.errors import FormatError, UserError
from mudd_core.data.pipelines import RowShape, prepare
from mudd_core.data.pipelines.megatron_maps import epochs_for, window_starts


def stream_windows(documents: list[list[int]], order: npt.NDArray[np.int32]) -> list[list[int]]:
    ids = [i for d in order for i in documents[d]]
    return [ids[k : k + LENGTH + 1] for k in range(0, len(ids) - LENGTH, LENGTH)]


@pytest.mark.parametrize("trial", range(40))
def test_window_starts_are_those_of_gpt_neox(trial: int) -> None:
    draw = np.random.default_rng(trial)
    sizes = draw.integers(0, 3 if trial % 3 == 0 else 30, draw.integers(1, 40)).astype(np.int32)
    sizes[0] += LENGTH + 2
    documents = draw.permutation(np.tile(np.arange(sizes.size), 2)).astype(np.int32)
    expected, at, offset = [[0, 0]], 0, 0  # the loop in GPT-NeoX's helper
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
    """Check the rule: each fraction of 969 : 30 : 1 is rounded, then the remainder shifts every end."""
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
    with pytest.raises(UserError, match=r"for valid, got 0 ids .* set data\.eval_path"):
        data.rows("valid", RowShape(LENGTH, BATCH, 0))


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
