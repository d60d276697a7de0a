"""data.cache=stream gives the rows of data.cache=full, from any place on, and says what went wrong by name."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mudd_core.base.errors import UserError
from mudd_core.config import Config, load_config
from mudd_core.data.pipelines import RowShape, blocks, document_rows, prepare
from mudd_core.data.pipelines.pipeline import Rows
from mudd_core.data.streaming import choose, in_order
from mudd_core.data.streaming.rows import StreamRows
from mudd_core.run.trainer import Trainer
from text_settings import quiet

LENGTH, BATCH = 16, 2
KINDS = ("pack", "rows", "blocks")
SHAPE = RowShape(LENGTH, BATCH, 7)


def write_texts(folder: Path, counts: tuple[int, ...], seed: int = 5) -> Path:
    """jsonl files of short and long documents, with empty lines between them."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    for number, count in enumerate(counts):
        lines = []
        for _ in range(count):
            text = " ".join(rng.choice("abcdefg") * rng.randint(1, 3) for _ in range(rng.randint(0, 9)))
            lines.append(json.dumps({"text": text}) + "\n" + " \n" * (rng.random() < 0.1))
        (folder / f"{number}.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files that train and one that validates."""
    folder = write_texts(tmp_path_factory.mktemp("streamed") / "texts", (90, 3, 140))
    write_texts(folder / "eval", (30,), 9)
    return folder


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which small corpora have several chunks, pieces and units."""
    monkeypatch.setattr(blocks, "CHUNK_DOCUMENTS", 31)
    monkeypatch.setattr(document_rows, "HELD_BATCHES", 5)
    monkeypatch.setattr(in_order, "PIECE_BYTES", 2000)


def config_of(kind: str, texts: Path, cache: str, *words: str) -> Config:
    base = [
        f"data.pipeline={kind}", f"data.path={texts}/*.jsonl", f"data.cache_dir={texts.parent}/{cache}",
        "data.tokenizer=bytes", "model.vocab_size=257", "model.d_model=16", "model.n_layer=1", "model.n_head=2",
        "model.d_ff=32", "train.steps=6", f"train.batch_size={BATCH}", f"train.seq_len={LENGTH}", "train.eval_every=6",
        "train.save_every=2", "train.logical_shards=2", "train.threads=1", "eval.max_batches=2", "data.buffer=5",
    ]  # fmt: skip
    return load_config("tiny.py", [*base, f"data.cache={cache}", *words])


def rows_of(config: Config, split: str = "train", shape: RowShape = SHAPE) -> Rows:
    return prepare(config, progress=quiet).rows(split, shape)  # type: ignore[arg-type]


def both(
    kind: str, texts: Path, *words: str, split: str = "train", shape: RowShape = SHAPE
) -> tuple[Rows, Rows]:
    streamed = rows_of(config_of(kind, texts, "stream", *words), split, shape)
    return rows_of(config_of(kind, texts, "full", *words), split, shape), streamed


def require_same(full: Rows, streamed: Rows, first: int, count: int) -> None:
    wanted, got = full.arrays(first, count), streamed.arrays(first, count)
    assert set(wanted) == set(got)
    for name, array in wanted.items():
        np.testing.assert_array_equal(array, got[name], err_msg=f"{name} from {first}")


@pytest.fixture
def closed() -> Iterator[list[Any]]:
    """Rows whose processes end with the test."""
    made: list[Any] = []
    yield made
    for rows in made:
        rows.close()


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
    for batch in random.Random(3).sample(sorted(cursors), 4):
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
    for cursor in ({"version": 2, "pipeline": "pack", "batch": 1, "places": [4]}, {"version": 1}, None, 5):
        again.go_on(cursor)
    require_same(full, again, 2, 2)


def _hash(config: Config, workdir: Path | None = None, steps: int = 0) -> str:
    """The final hash of a run; of its first steps alone, saved."""
    with Trainer(config, workdir) as trainer:
        for _ in range(steps):
            trainer.step()
        if steps:
            return str(trainer.save())
        return str(trainer.fit().final_hash)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_may_change_between_cache_and_stream(
    kind: str, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"data.eval_path={texts}/eval", "data.workers=2"]
    full, stream = config_of(kind, texts, "full", *words), config_of(kind, texts, "stream", *words)
    whole = _hash(full)
    assert _hash(stream) == whole
    _hash(full, tmp_path / "a", 3)
    assert _hash(stream, tmp_path / "a") == whole
    _hash(stream, tmp_path / "b", 3)
    (state,) = [
        json.loads(file.read_text())["state"] for file in tmp_path.glob("b/checkpoints/step-3/manifest.json")
    ]
    assert (state["data"]["version"], state["data"]["pipeline"], state["data"]["batch"]) == (1, kind, 3)
    assert _hash(full, tmp_path / "b") == whole


@pytest.mark.parametrize("workers", [1, 8])
def test_the_place_of_a_cache_is_that_of_a_stream(workers: int, texts: Path, closed: list[Any]) -> None:
    """A run that was begun with a cache is gone on with as a stream, without what lies before."""
    full, streamed = both("pack", texts, f"data.workers={workers}")
    closed.append(streamed)
    for batch in (0, 1, 12, 40):
        place: Any = full.cursor(batch)  # type: ignore[attr-defined]
        streamed.arrays(batch * BATCH, BATCH)
        streamed.arrays(batch * BATCH - BATCH if batch else 0, BATCH)
        known = streamed._cursors  # type: ignore[attr-defined]
        assert batch == 0 or dict(known[batch]) == place
        again: Any = rows_of(config_of("pack", texts, "stream", f"data.workers={workers}"))
        closed.append(again)
        again.go_on(place)
        require_same(full, again, batch * BATCH, BATCH)
        assert set(again._cursors) == {batch, batch + 1}


def test_what_cannot_be_streamed_is_refused_with_the_way_out(texts: Path, tmp_path: Path) -> None:
    def refused(*words: str, kind: str = "pack") -> str:
        with pytest.raises(UserError) as error:
            prepare(config_of(kind, texts, "stream", *words), progress=quiet)
        return str(error.value)

    assert "expected data.pipeline=pack, rows or blocks, got text; take data.cache=full" in refused(
        kind="text"
    )
    assert "expected data.pipeline=pack" in refused(kind="own.py:reader")
    assert "data.tokenizer=bpe, which is trained on all the text first" in refused("data.tokenizer=bpe")
    assert "set train.steps, or take data.cache=full" in refused("train.epochs=1")
    assert "those there: text" in refused("data.column=body")
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

    assert choose.AUTO_BYTES == 2 << 30
    monkeypatch.setattr(choose, "AUTO_BYTES", 100)
    assert streams() and streams(kind="rows") and streams(kind="blocks")
    assert not streams("data.tokenizer=bpe", "data.vocab_size=257", "model.vocab_size=300")
    assert not streams(kind="text")
    monkeypatch.setattr(choose, "AUTO_BYTES", 1 << 30)
    assert not streams()
    monkeypatch.setattr(choose, "AUTO_BYTES", 100)
    assert not streams()  # the cache is there now
    assert "data.cache=stream tokenizes ahead" in "\n".join(
        prepare(config_of("rows", texts, "stream", f"data.cache_dir={tmp_path}/none")).describe()
    )
