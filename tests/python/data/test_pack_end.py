"""The last batches of data.pipeline=pack with data.epochs: each worker ends with its remaining documents."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import streaming_cases as cases
from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.run.build.rows import row_shape
from mudd_core.run.loop.trainer import Trainer
from rank_runs import on_ranks
from streaming_cases import BATCH, both, config_of, require_same, rows_of

closed, small, texts = cases.closed, cases.small, cases.texts
Batch = list[list[int]]
LENGTH = 10


def worker_batches(sizes: list[int], numbers: list[int], rows: int) -> Iterator[Batch]:
    """Yield the batches of one worker, packed by first fit, with the remainder at the end."""
    batch: Batch = [[] for _ in range(rows)]
    for number in numbers:
        room = [row for row in batch if sum(sizes[n] for n in row) + sizes[number] <= LENGTH]
        if not room:
            yield batch
            batch = [[] for _ in range(rows)]
            room = batch
        room[0].append(number)
    if numbers:
        yield batch


def program_batches(sizes: list[int], rows: int, workers: int, epochs: int, seed: int) -> list[Batch]:
    """Return all batches in the loader's order: one per worker in turn, without the workers that have ended."""
    n = len(sizes)
    order = [_core.shuffled_index(at, n, seed + epoch) for epoch in range(epochs) for at in range(n)]
    streams = [worker_batches(sizes, order[worker::workers], rows) for worker in range(workers)]
    turns = itertools.zip_longest(*streams)
    return [batch for turn in turns for batch in turn if batch is not None]


def packed(folder: Path, sizes: list[int], rows: int, workers: int, epochs: int, seed: int) -> Any:
    """Return the core's sequences for documents of these sizes; document n has the id n + 1, repeated."""
    ids = np.repeat(np.arange(1, len(sizes) + 1), sizes).astype(np.uint16)
    (folder / "ids").write_bytes(ids.tobytes())
    spec = _core.TokenFileSpec(
        path=str(folder / "ids"),
        offset=0,
        count=ids.size,
        width=2,
        vocab_size=6000,
        block_crcs=_core.crc32c_blocks(ids),
    )
    starts = (np.cumsum(sizes) - sizes).astype(np.uint64)
    return _core.PackedRows(
        spec,
        LENGTH,
        starts=starts,
        longest=LENGTH,
        tail=1,
        batch_size=rows,
        workers=workers,
        epochs=epochs,
        seed=seed,
        index=str(folder / f"starts-{len(sizes)}-{rows}-{workers}-{epochs}"),
    )


def documents_of(core: Any, batch: int, rows: int) -> Batch:
    """Return the documents in each sequence, as identified by the targets."""
    inputs, targets = (np.zeros((rows, LENGTH), np.int32) for _ in range(2))
    parts = {name: np.zeros((rows, LENGTH), np.int32) for name in core.parts}
    core.fill(batch * rows, inputs, targets, parts)
    return [[key - 1 for key, _ in itertools.groupby(row) if key > 0] for row in targets.tolist()]


@settings(max_examples=60)
@given(
    st.lists(st.integers(2, LENGTH), min_size=1, max_size=60),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(0, 99),
)
@example([5], 2, 5, 1, 0)  # workers without a document
def test_all_batches_are_those_of_the_program(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    rows: int,
    workers: int,
    epochs: int,
    seed: int,
) -> None:
    wanted = program_batches(sizes, rows, workers, epochs, seed)
    if epochs > 1:  # a document after itself would look like one document
        wanted = [[[key for key, _ in itertools.groupby(row)] for row in batch] for batch in wanted]
    folder = tmp_path_factory.mktemp("packed")
    core = packed(folder, sizes, rows, workers, epochs, seed)
    assert documents_of(core, len(wanted) - 1, rows) == wanted[-1]  # read without the batches before it
    assert [documents_of(core, batch, rows) for batch in range(len(wanted))] == wanted
    assert core.batches() == len(wanted)
    if epochs == 1:
        assert core.rows == len(wanted) * rows
    with pytest.raises(ValueError, match=f"the data end before batch {len(wanted)} "):
        documents_of(core, len(wanted), rows)


def test_the_kept_starts_have_the_end_too(tmp_path: Path) -> None:
    sizes = [2 + n % 7 for n in range(5000)]
    arguments = (tmp_path, sizes, 1, 1500, 1, 5)  # with many workers the stored part includes the first ends
    first = packed(*arguments)
    end = first.batches()
    assert list(tmp_path.glob("starts*"))
    again = packed(*arguments)
    assert again.batches() == end
    for batch in (0, end - 3, end - 2, end - 1):
        assert documents_of(again, batch, 1) == documents_of(first, batch, 1)


def test_a_stream_ends_as_a_cache_does(texts: Path, closed: list[Any]) -> None:
    words = ("data.workers=5", "data.epochs=1", f"data.eval_path={texts}/eval")
    pair: Any = both("pack", texts, *words)
    full, streamed = pair
    closed.append(streamed)
    end = full.batches(1)
    require_same(full, streamed, 0, end * BATCH)
    with pytest.raises(UserError, match=f"the data end before batch {end} "):
        streamed.arrays(end * BATCH, BATCH)
    assert full.cursor(end - 1)["turn"] > end - 1  # another worker ended earlier
    for batch, source in ((end - 1, full), (end - 1, streamed), (end - 4, streamed)):
        again: Any = rows_of(config_of("pack", texts, "stream", *words))
        closed.append(again)
        again.go_on(json.loads(json.dumps(source.cursor(batch))))
        require_same(full, again, batch * BATCH, (end - batch) * BATCH)
        assert min(again._cursors) == batch  # no earlier batch was read
        again.close()


def test_places_of_earlier_checkpoints_have_no_turn(texts: Path, closed: list[Any]) -> None:
    words = ("data.workers=3", f"data.eval_path={texts}/eval")
    pair: Any = both("pack", texts, *words)
    full, streamed = pair
    closed.append(streamed)
    place = dict(full.cursor(7))
    assert place.pop("turn") == 7
    streamed.go_on(place)
    require_same(full, streamed, 7 * BATCH, BATCH)
    assert min(streamed._cursors) == 7


@pytest.mark.parametrize("cache", ["full", "stream"])
def test_a_run_over_the_end_resumes_to_the_same_weights(cache: str, texts: Path, tmp_path: Path) -> None:
    words = ["data.workers=5", "data.epochs=1", f"data.eval_path={texts}/eval"]
    plain = config_of("pack", texts, "full", *words)
    full: Any = rows_of(plain, shape=row_shape(plain))
    end = full.batches(1)
    assert full.cursor(end - 1)["turn"] > end - 1  # another worker ended earlier
    config = config_of("pack", texts, cache, *words, f"train.steps={end}", f"train.save_every={end - 2}")

    def trained(workdir: Path | None, comm: Any = None) -> str:
        with Trainer(config, workdir, comm=comm) as trainer:
            return str(trainer.fit().final_hash)

    whole = trained(None)
    with Trainer(config, tmp_path / "run") as trainer:
        for _ in range(end - 2):
            trainer.step()
        trainer.save()
    assert trained(tmp_path / "run") == whole
    assert set(on_ranks(lambda comm: trained(None, comm), 2)) == {whole}


def test_train_epochs_counts_the_last_batches(texts: Path, tmp_path: Path) -> None:
    for epochs in (1, 2):
        words = ["data.workers=3", f"data.epochs={epochs}", f"train.epochs={epochs}", "train.eval_every=0"]
        config = config_of("pack", texts, "full", *words, f"data.eval_path={texts}/eval")
        with Trainer(config) as trainer:
            steps = trainer.config.train.steps
        plain = dataclasses.replace(config, train=dataclasses.replace(config.train, epochs=0))
        full: Any = rows_of(plain, shape=row_shape(plain))
        assert steps == full.batches(epochs)
