"""data.cache=stream yields the same sequences as data.cache=full, from any position on."""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streaming_cases as cases
from mudd_core.base.errors import UserError
from mudd_core.base.framing import framed as framed_record
from mudd_core.base.packages import needed
from mudd_core.data.documents import source as documents_source
from mudd_core.data.formats.example import encoded
from mudd_core.data.messages import Message
from mudd_core.data.pipelines import RowShape, prepare
from mudd_core.data.streaming import data as stream_data
from mudd_core.data.streaming import records
from mudd_core.data.streaming.processes import Processes
from mudd_core.data.streaming.recipe import Encoder
from mudd_core.data.streaming.rows import StreamRows
from mudd_core.data.streaming.worker import Worker
from mudd_core.run.loop.trainer import Trainer
from mudd_core.tools import data_show
from rank_runs import on_ranks
from streaming_cases import BATCH, SHAPE, both, config_of, require_same, rows_of, write_texts
from text_settings import quiet

KINDS = ("pack", "rows", "blocks")
closed, small, texts = cases.closed, cases.small, cases.texts


@pytest.mark.parametrize(
    "words", [[], ["data.shuffle=off"], ["data.eval_path={texts}/eval", "data.workers=3"]]
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_has_the_rows_of_a_cache(
    kind: str, words: list[str], texts: Path, closed: list[Any]
) -> None:
    given = [word.format(texts=texts) for word in words]
    full, streamed = both(kind, texts, *given)
    assert isinstance(streamed, StreamRows)
    closed.append(streamed)
    assert full.parts == streamed.parts
    for first in range(0, 3 * full.rows, BATCH):
        require_same(full, streamed, first, BATCH)
    full, streamed = both(kind, texts, *given, split="valid")
    assert full.rows == streamed.rows > 0
    require_same(full, streamed, 0, full.rows + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_goes_on_from_any_cursor(kind: str, texts: Path, closed: list[Any]) -> None:
    words = ["data.workers=3", f"data.eval_path={texts}/eval"]
    full, streamed = both(kind, texts, *words)
    closed.append(streamed)
    cursors = {}
    for batch in range(2 * full.rows // BATCH):
        streamed.arrays(batch * BATCH, BATCH)
        cursor = streamed.cursor(batch + 1)  # type: ignore[attr-defined]
        cursors[batch + 1] = json.loads(json.dumps(cursor))
        assert cursor["batch"] == batch + 1
    for batch in random.Random(3).sample(sorted(cursors), 2):
        again: Any = rows_of(config_of(kind, texts, "stream", *words))
        closed.append(again)
        again.go_on(cursors[batch])
        require_same(full, again, batch * BATCH, 3 * BATCH)
        begun = again.cursor(batch + 10**6)
        assert begun["batch"] == batch + 3
        again.close()


def test_rows_are_asked_for_in_any_way(texts: Path, closed: list[Any]) -> None:
    full, streamed = both("pack", texts)
    closed.append(streamed)
    for first, count in ((7, 1), (8, 5), (6, 3), (0, 2), (31, 4)):
        require_same(full, streamed, first, count)
    again: Any = rows_of(config_of("pack", texts, "stream"))
    closed.append(again)
    for cursor in (
        {"version": 1, "pipeline": "pack", "batch": 1, "places": [4, 4]},
        {"version": 2, "pipeline": "pack", "batch": 1, "places": [4]},
        {"version": 1},
        None,
        5,
    ):
        again.go_on(cursor)
    require_same(full, again, 2, 2)
    parts = {"epoch": 0, "draws": 0, "read": 3, "ended": 0}
    for odd in ({"slots": [99], "origin": [0] * 5}, {"slots": [], "origin": [0]}):
        full, streamed = both("blocks", texts)
        closed.append(streamed)
        blocks: Any = streamed
        blocks.go_on({"version": 1, "pipeline": "blocks", "batch": 1, **parts, **odd})
        require_same(full, streamed, 2, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_saves_the_place_of_its_stream(kind: str, texts: Path, tmp_path: Path) -> None:
    with Trainer(config_of(kind, texts, "stream"), tmp_path) as trainer:
        trainer.fit(3)
    manifest = json.loads((tmp_path / "checkpoints" / "step-3" / "manifest.json").read_text())
    data = manifest["state"]["data"]
    assert (data["version"], data["pipeline"], data["batch"]) == (1, kind, 3)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("pack", []), ("pack", ["data.workers=8"]), ("rows", []), ("rows", ["data.eval_path={texts}/eval"])],
)
def test_the_place_of_a_cache_is_that_of_a_stream(
    kind: str, words: list[str], texts: Path, closed: list[Any]
) -> None:
    """Resume a run that used a cache as a stream, without reading the earlier documents."""
    words = [word.format(texts=texts) for word in words]
    full, streamed = both(kind, texts, *words)
    closed.append(streamed)
    known: Any = streamed
    for batch in (0, 1, 9, 13, full.rows // BATCH, full.rows // BATCH + 3):
        place: Any = full.cursor(batch)  # type: ignore[attr-defined]
        if batch:
            streamed.arrays(batch * BATCH - BATCH, BATCH)
            assert place == known.cursor(batch) or (kind, batch * BATCH) == ("rows", full.rows)
        if batch in (0, 13, full.rows // BATCH):
            again: Any = rows_of(config_of(kind, texts, "stream", *words))
            closed.append(again)
            again.go_on(json.loads(json.dumps(place)))
            require_same(full, again, batch * BATCH, BATCH)
            assert set(again._cursors) == {batch, batch + 1}
            again.close()


def test_the_place_of_a_cache_ends_with_its_data(texts: Path) -> None:
    full: Any = rows_of(config_of("pack", texts, "full", "data.epochs=1"))
    assert full.cursor(full.batches(1) - 1) is not None
    assert full.cursor(full.batches(1)) is None


def test_what_cannot_be_streamed_is_refused_with_the_way_out(texts: Path, tmp_path: Path) -> None:
    def refused(*words: str, kind: str = "pack") -> str:
        with pytest.raises(UserError) as error:
            prepare(config_of(kind, texts, "stream", *words), progress=quiet)
        return str(error.value)

    assert "expected data.pipeline=pack, rows or blocks, got text; set data.cache=full" in refused(
        kind="text"
    )
    assert "expected data.pipeline=pack" in refused(kind="own.py:reader")
    assert "data.tokenizer=bpe, which is trained on all the text first" in refused("data.tokenizer=bpe")
    assert "set train.steps, or set data.cache=full" in refused("train.epochs=1")
    assert "it has text" in refused("data.column=body")
    packed = tmp_path / "packed"
    packed.mkdir()
    (packed / "a.jsonl.gz").write_bytes(gzip.compress((texts / "0.jsonl").read_bytes()))
    assert "a.jsonl.gz is compressed" in refused(f"data.path={packed}")
    rows = rows_of(config_of("blocks", texts, "stream", f"data.path={packed}", f"data.cache_dir={tmp_path}"))
    assert isinstance(rows, StreamRows)


def test_auto_streams_above_a_size(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def streams(*words: str, kind: str = "pack") -> bool:
        config = config_of(kind, texts, "full", "data.cache=auto", f"data.cache_dir={tmp_path}", *words)
        return isinstance(prepare(config, progress=quiet).rows("train", SHAPE), StreamRows)

    assert stream_data.AUTO_BYTES == 2 << 30
    monkeypatch.setattr(stream_data, "AUTO_BYTES", 100)
    assert streams() and streams(kind="rows") and streams(kind="blocks")
    assert not streams("data.tokenizer=bpe", "data.vocab_size=257", "model.vocab_size=300")
    assert not streams(kind="text")
    monkeypatch.setattr(stream_data, "AUTO_BYTES", 1 << 30)
    assert not streams()
    monkeypatch.setattr(stream_data, "AUTO_BYTES", 100)
    assert not streams()  # now the cache exists
    assert "data.cache=stream tokenizes ahead" in "\n".join(
        prepare(config_of("rows", texts, "stream", f"data.cache_dir={tmp_path}/none")).describe()
    )


@pytest.mark.parametrize("kind", ["tfrecord", "arrayrecord", "parquet", "arrow", "text", "cut"])
def test_documents_of_every_format_are_read_by_number(kind: str, tmp_path: Path, closed: list[Any]) -> None:
    """Read single records, because the shuffled order of `pack` needs them from anywhere in the files."""
    rng = random.Random(2)
    lines = ["x" * rng.randint(0, 30) + f" {number} \u00e4" for number in range(70)]
    folder = tmp_path / "files"
    folder.mkdir()
    write_format(kind, folder, lines)
    words = [f"data.path={folder}/*", f"data.cache_dir={tmp_path}/caches", "data.workers=2"]
    streamed = rows_of(config_of("pack", folder, "stream", *words))
    assert isinstance(streamed, StreamRows)
    closed.append(streamed)
    arrays = streamed.arrays(0, 30)
    full = rows_of(config_of("pack", folder, "full", *words))
    for name, array in full.arrays(0, 30).items():
        np.testing.assert_array_equal(array, arrays[name])


def write_format(kind: str, folder: Path, lines: list[str]) -> None:
    """Write two files with 40 and 30 documents; for "cut" one file that is split, for "text" 70 files."""
    halves = (lines[:40], lines[40:])
    if kind in ("text", "cut"):
        groups = [[line] for line in lines] if kind == "text" else ["\n\n".join([line * 9 for line in lines])]
        for number, group in enumerate(groups):
            (folder / f"{number:02}.txt").write_text("".join(group))
        return
    for number, part in enumerate(halves):
        path = folder / f"{number}.{kind}"
        if kind in ("parquet", "arrow"):
            write_table(kind, path, part)
        else:
            write_examples(kind, path, part)


def write_table(kind: str, path: Path, part: list[str]) -> None:
    pyarrow = needed("pyarrow", "[test]", "to write tables")
    parquet, ipc = (needed(f"pyarrow.{name}", "[test]", "to write tables") for name in ("parquet", "ipc"))
    table = pyarrow.table({"text": part})
    if kind == "parquet":
        parquet.write_table(table, path, row_group_size=7)
    else:
        with ipc.new_file(str(path), table.schema) as out:
            out.write_table(table, max_chunksize=7)


def write_examples(kind: str, path: Path, part: list[str]) -> None:
    payloads = [encoded({"text": line}) for line in part]
    if kind == "tfrecord":
        with path.open("wb") as out:
            for payload in payloads:
                out.write(framed_record(payload))
        return
    module = needed("array_record.python.array_record_module", "[test]", "to write ArrayRecords")
    writer = module.ArrayRecordWriter(str(path), "group_size:1")
    for payload in payloads:
        writer.write(payload)
    writer.close()


class Here(Processes):
    """A stand-in for worker processes that does the work in this process."""

    def submit(self, head: Any, arrays: Any = (), *, file: str, what: str) -> int:
        self._tickets += 1
        self._asked = {**getattr(self, "_asked", {}), self._tickets: (head, list(arrays))}
        return self._tickets

    def result(self, ticket: int) -> Message:
        if not hasattr(self, "_worker"):
            self._worker = Worker(Encoder.of_message(self.recipe.message()))
        return self._worker.do(*self._asked.pop(ticket))


@settings(max_examples=12)
@given(
    st.lists(st.integers(0, 25), min_size=1, max_size=4), st.integers(1, 8), st.sampled_from(KINDS), st.data()
)
def test_streams_of_any_corpus(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], workers: int, kind: str, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("any")
    texts = write_texts(folder / "texts", (*counts, 3), sum(counts))
    write_texts(folder / "texts" / "eval", (12,), 4)
    words = [f"data.workers={workers}", "data.buffer=4"]
    words += [f"data.eval_path={texts}/eval"] if data.draw(st.booleans()) else []
    shape = RowShape(9 + workers, BATCH, workers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_data, "Processes", Here)
        streamed: Any = rows_of(config_of(kind, texts, "stream", *words), shape=shape)
        try:
            full = rows_of(config_of(kind, texts, "full", *words), shape=shape)
        except UserError:
            with pytest.raises(UserError, match=r"\[data.path\] expected"):
                streamed.arrays(0, BATCH)
            return
        first = BATCH * data.draw(st.integers(0, 2 * full.rows // BATCH))
        require_same(full, streamed, 0, 2 * BATCH)
        require_same(full, streamed, first, BATCH)
        again: Any = rows_of(config_of(kind, texts, "stream", *words), shape=shape)
        again.go_on(json.loads(json.dumps(streamed.cursor(first // BATCH + 1))))
        require_same(full, again, first + BATCH, 2 * BATCH)


def test_documents_held_out_are_found_group_by_group(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that a killed build continues after its last group, and that no process remains."""
    monkeypatch.setattr(documents_source, "GROUP_BYTES", 1)
    told: list[tuple[str, int, int]] = []

    def stopped(phase: str, done: int, total: int) -> None:
        if phase != "tokenizing":
            return
        told.append((phase, done, total))
        if done == 2:
            raise KeyboardInterrupt

    words = [f"data.cache_dir={tmp_path}"]
    config = config_of("pack", texts, "stream", *words)
    with pytest.raises(KeyboardInterrupt):
        prepare(config, progress=stopped).rows("valid", SHAPE)
    assert told == [("tokenizing", done, 3) for done in range(3)]
    (totals,) = tmp_path.glob("*.parts/totals.json")
    assert json.loads(totals.read_text())["parts"] == 2
    full, streamed = both("pack", texts, split="valid")
    again = rows_of(config, "valid")
    assert again.rows == streamed.rows == full.rows
    require_same(full, again, 0, full.rows)


def test_one_batch_again_and_again(texts: Path) -> None:
    with Trainer(config_of("pack", texts, "stream", "data.repeat_batch=true")) as trainer:
        rows = trainer.engine.batcher
        first = rows.arrays(0, BATCH)["inputs"]
        assert (first == rows.arrays(6, BATCH)["inputs"]).all()
        trainer.fit()
        (pid,) = rows.of._stream._processes.pids
    assert not Path(f"/proc/{pid}").exists()


def test_the_rows_of_a_step_are_shown(texts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for cache in ("stream", "full"):
        words = ["data.pipeline=pack", f"data.path={texts}/*.jsonl", f"data.eval_path={texts}/eval"]
        words += [
            f"data.cache={cache}",
            f"data.cache_dir={texts.parent}/shown-{cache}",
            "data.tokenizer=bytes",
        ]
        assert data_show.main(["--config=tiny.py", "--step=3", *words, "train.batch_size=2"]) == 0
        shown.append(capsys.readouterr())
    assert shown[0].out == shown[1].out != ""
    assert "tokenized ahead of the training" in shown[0].err


def test_ranks_stream_the_rows_of_one_process(texts: Path) -> None:
    config = config_of("pack", texts, "stream", f"data.eval_path={texts}/eval")

    def work(comm: Any) -> str:
        with Trainer(config, comm=comm) as trainer:
            return str(trainer.fit().final_hash)

    with Trainer(config) as trainer:
        assert set(on_ranks(work, 2)) == {trainer.fit().final_hash}


def test_a_cache_without_its_files_has_no_place(texts: Path, tmp_path: Path) -> None:
    config = config_of("rows", texts, "full", f"data.cache_dir={tmp_path}")
    full: Any = rows_of(config)
    (tmp_path / prepare(config, progress=quiet).fingerprint / "cache.json").unlink()
    assert full.cursor(0) is not None
    assert full.cursor(9) is None


@pytest.mark.parametrize("in_memory", [0, 1 << 16])
def test_many_files_do_not_use_up_the_descriptors(
    in_memory: int, tmp_path: Path, closed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check the second start, which finds records by their files: it once had 1,500 files open at the same time."""
    monkeypatch.setattr(records, "_IN_MEMORY", in_memory)
    monkeypatch.setattr(records, "_OPEN_FILES", 3)
    folder = write_texts(tmp_path / "texts", (4,) * 60)
    write_texts(tmp_path / "eval", (30,), 9)
    config = config_of("pack", folder, "stream", f"data.eval_path={tmp_path}/eval")
    wanted = rows_of(config)
    closed.append(wanted)
    first = wanted.arrays(0, 8)["inputs"]
    before = len(os.listdir("/proc/self/fd"))
    again = rows_of(config)
    closed.append(again)
    assert (again.arrays(0, 8)["inputs"] == first).all()
    pipes = 3 * 2  # of one process
    assert len(os.listdir("/proc/self/fd")) <= before + 3 + pipes
