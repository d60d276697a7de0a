"""Small tokenized data sets, one for each pipeline, and configs that train on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mudd_core.base.framing import framed
from mudd_core.config import Config, load_config
from mudd_core.data.formats.example import encoded
from mudd_core.data.formats.megatron import head_bytes

LENGTH, BATCH, VOCAB = 8, 4, 100
DRAW = np.random.default_rng(3)


def words_of(pipeline: str, folder: Path, *words: str) -> list[str]:
    return [
        f"data.pipeline={pipeline}",
        f"data.path={folder}",
        f"data.cache_dir={folder}-cache",
        f"model.vocab_size={VOCAB}",
        "model.d_model=16",
        "model.n_layer=1",
        "model.n_head=2",
        "model.d_ff=32",
        "train.steps=4",
        f"train.batch_size={BATCH}",
        f"train.seq_len={LENGTH}",
        "train.eval_every=4",
        "train.save_every=2",
        "train.logical_shards=4",
        "train.threads=1",
        "eval.max_batches=2",
        *words,
    ]


def config_of(pipeline: str, folder: Path, *words: str) -> Config:
    return load_config("tiny.py", words_of(pipeline, folder, *words))


def write_records(path: Path, records: list[list[int]], name: str = "input_ids") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(framed(encoded({name: np.array(r, np.int64)})) for r in records))


def write_indexed(name: Path, sequences: list[list[int]]) -> None:
    name.parent.mkdir(exist_ok=True)
    Path(f"{name}.bin").write_bytes(b"".join(np.array(s, "<u2").tobytes() for s in sequences))
    sizes = np.array([len(s) for s in sequences], np.int64)
    Path(f"{name}.idx").write_bytes(head_bytes(8, sizes, np.arange(len(sequences) + 1)))


def lists(count: int, low: int, high: int) -> list[list[int]]:
    return [DRAW.integers(0, VOCAB, DRAW.integers(low, high)).tolist() for _ in range(count)]


def write_feature_rows(path: Path, count: int, first: int = 0) -> dict[str, list[list[int]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids = DRAW.integers(1, VOCAB, (count, LENGTH))
    mask = np.ones((count, LENGTH), np.float32)
    mask[:, 5:] = 0
    labels = np.where(mask > 0, ids + 0, -100)
    table = {"input_ids": ids.tolist(), "attention_mask": mask.tolist(), "labels": labels.tolist()}
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(table), path)
    return table


def words_made(pipeline: str, folder: Path) -> list[str]:
    """Return the arguments of a config on data that are written here."""
    if pipeline == "synthetic":
        return words_of(pipeline, folder)
    if pipeline == "pile":
        for n, count in ((0, 9), (1, 7)):
            write_records(folder / f"pile.tfrecord.b{n}", lists(count, 5, 14))
        write_records(folder / "pile.tfrecord.v0", lists(5, 5, 14))
        return words_of(pipeline, folder, "data.eval_match=.v0", "data.format=tfrecord")
    if pipeline == "megatron":
        write_indexed(folder / "x", lists(20, 5, 20))
        write_indexed(folder.parent / "held", lists(9, 5, 20))
        return words_of(pipeline, folder, f"data.eval_path={folder.parent}/held")
    if pipeline == "ids":
        folder.mkdir()
        for name, count in (("a.bin", 150), ("b.u16", 70)):
            DRAW.integers(0, VOCAB, count).astype("<u2").tofile(folder / name)
        return words_of(pipeline, folder)
    write_feature_rows(folder / "train-0", 12)
    write_feature_rows(folder / "valid-0", 4)
    return words_of(pipeline, folder, "data.eval_match=valid-0", "data.format=parquet")


def made(pipeline: str, folder: Path) -> Config:
    """Return a config of the pipeline on its own data."""
    return load_config("tiny.py", words_made(pipeline, folder))
