"""Helpers of the tests of streams: small corpora, configs, sequences of a cache and of a stream."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mudd_core.config import Config, load_config
from mudd_core.data.pipelines import RowShape, blocks, prepare
from mudd_core.data.pipelines import rows as document_rows
from mudd_core.data.rows import Rows
from mudd_core.data.streaming import in_order
from text_settings import quiet

LENGTH, BATCH = 16, 2
SHAPE = RowShape(LENGTH, BATCH, 7)


def write_texts(folder: Path, counts: tuple[int, ...], seed: int = 5) -> Path:
    """Write jsonl files of short and long documents, with empty lines between them."""
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
    """Return three files for training and one for validation."""
    folder = write_texts(tmp_path_factory.mktemp("streamed") / "texts", (90, 3, 140))
    write_texts(folder / "eval", (30,), 9)
    return folder


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set sizes at which small corpora have several chunks, pieces and units."""
    make_small(monkeypatch.setattr)


def make_small(change: Callable[[object, str, int], None]) -> None:
    """Set these sizes by setattr, or only during a test by monkeypatch."""
    change(blocks, "CHUNK_DOCUMENTS", 31)
    change(document_rows, "HELD_BATCHES", 5)
    change(in_order, "PIECE_BYTES", 2000)


def config_of(kind: str, texts: Path, cache: str, *words: str) -> Config:
    steps = [] if any(word.startswith("train.epochs=") for word in words) else ["train.steps=6"]
    base = [
        *steps,
        f"data.pipeline={kind}",
        f"data.path={texts}/*.jsonl",
        f"data.cache_dir={texts.parent}/{cache}",
        "data.tokenizer=bytes",
        "model.vocab_size=257",
        "model.d_model=16",
        "model.n_layer=1",
        "model.n_head=2",
        "model.d_ff=32",
        f"train.batch_size={BATCH}",
        f"train.seq_len={LENGTH}",
        "train.eval_every=6",
        "train.save_every=2",
        "train.logical_shards=2",
        "train.threads=1",
        "eval.max_batches=2",
        "data.buffer=5",
    ]
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
    """Yield streams whose processes end with the test."""
    made: list[Any] = []
    yield made
    for rows in made:
        rows.close()
