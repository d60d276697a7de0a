"""Sequences from the core, compared with reference code written from the pages, on random corpora."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mudd_core import _core
from mudd_core.data.pipelines.blocks import blocks, chunks
from places import TESTS

GOLDENS = TESTS / "goldens" / "data"
Documents = list[list[int]]
corpora = st.lists(st.lists(st.integers(1, 40), max_size=12), min_size=1, max_size=25)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Documents], tuple[Any, Any]]:
    """Return (token file, starts) for documents."""
    path = tmp_path_factory.mktemp("ids") / "ids"

    def write(documents: Documents) -> tuple[Any, Any]:
        ids = np.array([i for d in documents for i in d], np.uint16)
        path.write_bytes(ids.tobytes())
        lengths = np.array([len(d) for d in documents])
        spec = _core.TokenFileSpec(
            path=str(path),
            offset=0,
            count=ids.size,
            width=2,
            vocab_size=50,
            block_crcs=_core.crc32c_blocks(ids),
        )
        return spec, (np.cumsum(lengths) - lengths).astype(np.uint64)

    return write


def read(core: Any, first: int, n: int, length: int) -> dict[str, Any]:
    names = ("inputs", "targets", *core.parts)
    arrays = {name: np.full((n, length), -7, np.int32) for name in names}
    core.fill(first, arrays["inputs"], arrays["targets"], {name: arrays[name] for name in core.parts})
    return arrays


def pack_oracle(documents: Documents, length: int, rows: int, workers: int, seed: int, n: int) -> Any:
    """Return the first n batches as lists of sequences of documents, packed like the page's loader."""
    places, found = list(range(workers)), list[Any]()
    for batch in range(n):
        worker = batch % workers
        packed: list[list[int]] = [[] for _ in range(rows)]
        used = [0] * rows
        while True:
            epoch, at = divmod(places[worker], len(documents))
            number = _core.shuffled_index(at, len(documents), seed + epoch)
            size = len(documents[number])
            row = next((r for r in range(rows) if used[r] + size <= length), None)
            if row is None:
                break
            packed[row].append(number)
            used[row] += size
            places[worker] += workers
        found.append(packed)
    return found


def shift_oracle(documents: Documents, length: int) -> dict[str, Any]:
    """Return inputs, targets, positions and segments of a packed sequence."""
    y, s, p = (np.zeros(length, int) for _ in range(3))
    at = 0
    for number, document in enumerate(documents, 1):
        size = len(document)
        y[at : at + size], s[at : at + size], p[at : at + size] = document, number, range(size)
        at += size
    x = np.concatenate(([0], y[:-1]))
    s = s * (y != 0)
    x[s != np.concatenate(([0], s[:-1]))] = 0
    return {"inputs": x, "targets": np.where(y != 0, y, -1), "positions": p, "segments": s}


@settings(max_examples=80)
@given(corpora, st.integers(1, 3), st.sampled_from([1, 2, 3, 8]), st.integers(0, 99))
def test_packed_rows(
    stored: Callable[[Documents], tuple[Any, Any]], texts: Documents, rows: int, workers: int, seed: int
) -> None:
    length = 10
    spec, starts = stored([[0, *text, 0] for text in texts])
    core = _core.PackedRows(
        spec, length, starts=starts, longest=length - 1, tail=1, batch_size=rows, workers=workers, seed=seed
    )
    documents = [[0, *text[: length - 3], 0] for text in texts]
    wanted = pack_oracle(documents, length, rows, workers, seed, 5)
    got = read(core, 0, 5 * rows, length)
    for sample in range(5 * rows):
        row = [documents[i] for i in wanted[sample // rows][sample % rows]]
        for name, values in shift_oracle(row, length).items():
            assert got[name][sample].tolist() == values.tolist()


@settings(max_examples=80)
@given(corpora, st.booleans())
def test_one_document_a_row(
    stored: Callable[[Documents], tuple[Any, Any]], texts: Documents, ends: bool
) -> None:
    """Check mup a.5 and f: truncate to T but keep the template's end, pad with eos, shift by bos; eos is a target
    once.
    """
    length, eos, bos = 6, 45, 3
    documents = [[*text, eos] if ends else text for text in texts]
    spec, starts = stored(documents)
    core = _core.document_rows(
        spec,
        _core.RowRule("behind_bos", pad_id=eos, bos_id=bos, stop_id=eos),
        length,
        starts=starts,
        longest=length,
        tail=int(ends),
        first=0,
        count=len(texts),
        wraps=True,
    )
    got = read(core, 0, len(texts) + 1, length)
    for sample in range(len(texts) + 1):
        text = texts[sample % len(texts)]
        y = ([*text[: length - 1], eos] if ends else text[:length]) + [eos] * length
        y = y[:length]
        mask = [t == 0 or eos not in y[:t] for t in range(length)]
        assert got["inputs"][sample].tolist() == [bos, *y[:-1]]
        assert got["targets"][sample].tolist() == [i if m else -1 for i, m in zip(y, mask, strict=True)]


@settings(max_examples=80)
@given(corpora, st.integers(1, 7))
def test_blocks(stored: Callable[[Documents], tuple[Any, Any]], texts: Documents, size: int) -> None:
    """Check moe d: a chunk's documents are concatenated and split; the last block is padded, and padding is masked."""
    length = 5
    spec, starts = stored(texts)
    ends = [*starts.tolist(), sum(map(len, texts))]
    half = len(texts) // 2
    order = [(half, len(texts)), (0, half)] if half else [(0, len(texts))]
    runs = [
        list(blocks([(ends[a], ends[b] - ends[a]) for a, b in chunk], length))
        for chunk in chunks(order, size)
    ]
    table = [block for chunk in runs for block in chunk]
    shuffled = [texts[i] for a, b in order for i in range(a, b)]
    wanted = []
    for first in range(0, len(texts), size):
        ids = [i for text in shuffled[first : first + size] for i in text]
        wanted += [ids[at : at + length] for at in range(0, len(ids), length)]
    assert len(table) == len(wanted)
    if not wanted:
        return
    pieces = np.array([piece for block in table for piece in block], np.int64)
    core = _core.table_rows(
        spec,
        _core.RowRule("inside"),
        length,
        begins=np.cumsum([0, *map(len, table)]),
        firsts=pieces[:, 0],
        counts=pieces[:, 1],
        wraps=False,
    )
    got = read(core, 0, len(wanted) + 1, length)
    for sample, ids in enumerate([*wanted, []]):
        room = length - len(ids)
        assert got["inputs"][sample].tolist() == [*ids, *[0] * room]
        assert got["targets"][sample].tolist() == ([*ids[1:], *[-1] * (room + 1)] if ids else [-1] * length)
        assert got["key_mask"][sample].tolist() == [1] * len(ids) + [0] * room


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 40), min_size=2, max_size=9), min_size=1, max_size=9), st.booleans())
def test_rows_of_next_ids(
    stored: Callable[[Documents], tuple[Any, Any]], rows: Documents, counts: bool
) -> None:
    """Check muddformer e.2: T + 1 ids per sequence, truncated or padded with 0; 0 is a target only with zero_loss."""
    length = 5
    spec, starts = stored(rows)
    sizes = np.array([len(row) for row in rows])
    rule = _core.RowRule("next", ignored_id=-1 if counts else 0, pad_counts=counts)
    core = _core.table_rows(
        spec, rule, length, begins=np.arange(len(rows) + 1), firsts=starts.astype(np.int64), counts=sizes
    )
    got = read(core, 0, len(rows), length)
    for sample, row in enumerate(rows):
        ids = [*row, *[0] * length][: length + 1]
        assert got["inputs"][sample].tolist() == ids[:-1]
        assert got["targets"][sample].tolist() == [i if i > 0 or counts else -1 for i in ids[1:]]


def test_the_order_of_records_is_that_of_grain() -> None:
    for order in json.loads((GOLDENS / "grain_order.json").read_text())["orders"]:
        found = [_core.shuffled_index(i, order["n"], order["seed"]) for i in order["at"]]
        assert found == order["image"], order


def test_a_far_batch_is_found_by_the_kept_starts(
    stored: Callable[[Documents], tuple[Any, Any]], tmp_path: Path
) -> None:
    spec, starts = stored([[0, *range(1, 2 + n % 7), 0] for n in range(200)])
    options: dict[str, Any] = {"starts": starts, "longest": 15, "tail": 1, "batch_size": 2, "seed": 4}
    first = _core.PackedRows(spec, 16, **options, index=str(tmp_path / "starts"))
    place = first.start_of(24_000)
    # stored for nearly all: a resume packs only a few batches again
    assert (tmp_path / "starts").stat().st_size > 8 * 23_000
    again = _core.PackedRows(spec, 16, **options, index=str(tmp_path / "starts"))
    assert again.start_of(24_000) == place
    assert read(again, 30_000, 2, 16)["inputs"].tolist() == read(first, 30_000, 2, 16)["inputs"].tolist()
