"""Sequences of the id pipelines, compared with reference code written from the pages, on random data files."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from id_cases import VOCAB, config_of, write_indexed, write_records
from mudd_core.data.pipelines import RowShape, prepare
from mudd_core.data.pipelines.pile_order import through_reservoir

LENGTH = 5
ids = st.integers(0, VOCAB - 1)
sequences = st.lists(st.lists(ids, max_size=12), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a function that creates a new folder for every call; all of them are deleted at the end."""
    root, number = tmp_path_factory.mktemp("oracle"), itertools.count()

    def new() -> Path:
        folder = root / str(next(number)) / "d"
        folder.mkdir(parents=True)
        return folder

    yield new
    shutil.rmtree(root)


def rows_of(pipeline: str, folder: Path, batch: int, seed: int, *words: str) -> Any:
    words = (f"train.seq_len={LENGTH}", f"train.batch_size={batch}", f"data.seed={seed}", *words)
    return prepare(config_of(pipeline, folder, *words)).rows("train", RowShape(LENGTH, batch, seed))


def pile_oracle(files: list[list[list[int]]], batch: int, group: int, epochs: int) -> list[list[int]]:
    """Return MUDDFormer's order of the Pile (docs/data.md, 3): T + 1 ids per record, files in groups, no incomplete
    batch of a group.
    """
    listed = files * epochs
    found: list[list[int]] = []
    for first in range(0, len(listed), group or len(listed)):
        rows = [row for file in listed[first : first + (group or len(listed))] for row in file]
        found += [([*row, *[0] * LENGTH])[: LENGTH + 1] for row in rows[: len(rows) // batch * batch]]
    return found


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.lists(st.lists(ids, min_size=1, max_size=9), max_size=5), min_size=1, max_size=4),
    st.integers(1, 3),
    st.integers(0, 5),
    st.integers(1, 3),
    st.booleans(),
)
def test_records_of_the_pile(
    place: Any, files: list[list[list[int]]], batch: int, group: int, epochs: int, zero_counts: bool
) -> None:
    wanted = pile_oracle(files, batch, group, epochs)
    if not wanted or sum(map(len, files)) < batch or not pile_oracle(files, batch, group, len(files)):
        return  # rejected: fewer records than a batch
    folder = place()
    for number, records in enumerate(files):
        write_records(
            folder / f"pile.tfrecord.b{7 * number}", records
        )  # 14 comes after 7 by number, not by name
    write_records(folder / "val_x", [[1, 2]])
    words = (f"data.files_per_group={group}", "data.eval_match=val_x", "data.format=tfrecord")
    rows = rows_of("pile", folder, batch, 0, *words, f"data.zero_loss={str(zero_counts).lower()}")
    assert rows.batches(epochs) * batch == len(wanted)
    got = rows.arrays(0, len(wanted))
    assert got["inputs"].tolist() == [row[:-1] for row in wanted]
    assert got["targets"].tolist() == [[i if i or zero_counts else -1 for i in row[1:]] for row in wanted]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(1, 2),
    st.integers(0, 5),
    st.integers(1, 3),
    st.integers(1, 4),
)
def test_a_buffer_gives_every_record_of_a_group_once(
    place: Any, counts: list[int], batch: int, group: int, epochs: int, buffer: int
) -> None:
    """Check that the last group has only the remaining files of the last epoch, and that no record follows."""
    names = itertools.count(1)
    files = [[[next(names)] for _ in range(count)] for count in counts]
    wanted = pile_oracle(files, 1, group, epochs)
    if sum(counts) < batch or not pile_oracle(files, batch, group, len(files)):
        return
    folder = place()
    for number, records in enumerate(files):
        write_records(folder / f"pile.tfrecord.b{number}", records)
    write_records(folder / "val_x", [[1, 2]])
    words = (f"data.files_per_group={group}", "data.eval_match=val_x", "data.format=tfrecord")
    rows = rows_of("pile", folder, batch, 3, *words, f"data.buffer={buffer}", f"data.epochs={epochs}")
    got = rows.arrays(0, rows.batches(epochs) * batch)["inputs"][:, 0].tolist()
    listed, at = counts * epochs, 0
    size = group or len(counts)  # without groups each epoch is shuffled separately
    for first in range(0, len(listed), size):
        of_group = sum(listed[first : first + size])
        left = of_group if not group else of_group // batch * batch
        taken, known = got[at : at + left], [row[0] for row in wanted[:of_group]]
        assert not [name for name in set(taken) if taken.count(name) > known.count(name)]
        wanted, at = wanted[of_group:], at + left


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 6), st.integers(0, 40), st.integers(0, 99))
def test_records_leave_a_reservoir_when_their_place_is_taken(size: int, count: int, seed: int) -> None:
    slots = np.random.default_rng(seed).integers(0, size, count)
    held, left = list(range(size)), []
    for number, slot in enumerate(slots):
        left.append(held[slot])
        held[slot] = size + number
    found = through_reservoir(slots, size)
    assert [part.tolist() for part in found] == [left, held]


def windows(documents: list[list[int]], order: list[int]) -> list[list[int]]:
    """Return the sequences of T + 1 ids of the concatenated documents; neighbours share an id."""
    stream = [i for number in order for i in documents[number]]
    return [stream[k * LENGTH : k * LENGTH + LENGTH + 1] for k in range((len(stream) - 1) // LENGTH)]


@settings(max_examples=80, deadline=None)
@given(sequences, st.integers(1, 3), st.integers(1, 3), st.integers(0, 9))
def test_windows_of_documents_in_gpt_neox_order(
    place: Any, documents: list[list[int]], batch: int, epochs: int, seed: int
) -> None:
    """Check muddformer e.1: one RandomState shuffles the documents of all epochs, then the sequences."""
    one = windows(documents, list(range(len(documents))))
    if len(one) < batch or all(len(document) == LENGTH + 1 for document in documents):
        return  # rejected, or records in training order
    draw, order = np.random.RandomState(seed), np.tile(np.arange(len(documents)), epochs)
    draw.shuffle(order)
    wanted = windows(documents, order.tolist())
    turned = np.arange(len(wanted))
    draw.shuffle(turned)
    folder = place()
    write_indexed(folder / "x", documents)
    write_indexed(folder.parent / "held", [[1] * 30])
    words = (f"data.eval_path={folder.parent}/held", f"data.epochs={epochs}", "train.steps=1")
    rows = rows_of("megatron", folder, batch, seed, *words)
    assert rows.batches(epochs) == len(wanted) // batch
    got = rows.arrays(0, len(wanted))
    assert got["inputs"].tolist() == [wanted[k][:-1] for k in turned]
    assert got["targets"].tolist() == [wanted[k][1:] for k in turned]


@settings(max_examples=80, deadline=None)
@given(st.data(), st.lists(st.integers(0, 6), min_size=1, max_size=3), st.integers(1, 3))
def test_feature_rows_in_the_order_of_their_files(
    place: Any, data: st.DataObject, counts: list[int], batch: int
) -> None:
    """Check lm_pipeline 5: the stored order; the last incomplete batch is dropped, and the order repeats."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = st.fixed_dictionaries(
        {
            "input_ids": st.lists(ids, min_size=LENGTH, max_size=LENGTH),
            "attention_mask": st.lists(st.sampled_from([0, 1]), min_size=LENGTH, max_size=LENGTH),
            "labels": st.lists(st.integers(-100, VOCAB - 1), min_size=LENGTH, max_size=LENGTH),
        }
    )
    files = [data.draw(st.lists(row, min_size=count, max_size=count)) for count in counts]
    rows = [one for file in files for one in file]
    rows = rows[: len(rows) // batch * batch]
    if not rows:
        return  # rejected: fewer records than a batch
    folder = place()
    wide = {name: pa.list_(pa.int64()) for name in ("input_ids", "attention_mask", "labels")}
    for number, file in enumerate([*files, rows[:1] * batch]):
        name = f"part-{number:05}" if number < len(files) else "held"
        columns = {key: pa.array([one[key] for one in file], kind) for key, kind in wide.items()}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    got = rows_of("features", folder, batch, 0, "data.eval_match=held").arrays(0, 2 * len(rows))
    wanted = rows * 2
    assert got["inputs"].tolist() == [one["input_ids"] for one in wanted]
    assert got["key_mask"].tolist() == [one["attention_mask"] for one in wanted]
    assert got["targets"].tolist() == [[max(i, -1) for i in one["labels"]] for one in wanted]
