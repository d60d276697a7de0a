"""Measure how fast readers and tokenization supply a training run, as ratios within one run on one core.

    python bench/bench_data.py                   # all pipelines: 2 minutes
    python bench/bench_data.py --only pile pack

Each pipeline has one row: the tokens/s of its batches (9M shape, warm cache) divided by the tokens/s at which the 9M
Transformer++ trains on the same core (fp32, one thread). Steps and batches alternate; times are medians of CPU time
over --rounds. `tokenize` is the MB/s of building a token cache with a tokenizer.json, divided by the MB/s of the
`tokenizers` library for the same documents (encode_batch, one thread). The text is this repository, repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

import row_json
from bench_step import make_engine
from shapes import SHAPES, commit, cpu_name
from workload import LR, batch_tokens

ROOT = Path(__file__).resolve().parents[1]
SHAPE = SHAPES["9M"]
READER_BAR, TOKENIZE_BAR = 20, 0.8
Corpus = tuple[str, Path, tuple[str, ...]]  # the pipeline, its data, and further overrides of the config


def documents(size: int) -> list[str]:
    """Return documents of English text and code with `size` bytes in total, but with the whole text at least once."""
    files = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("python/**/*.py")])
    texts = [path.read_text() for path in files]
    parts = [t[at : at + 2000] for t in texts for at in range(0, len(t), 2000)]
    copies = max(1, size // sum(map(len, parts)))
    return [f"copy {n}\n{part}" for n in range(copies) for part in parts]


def write_tokenizer(path: Path, texts: list[str]) -> None:
    """Write a byte-level BPE of 8,192 tokens, trained by the `tokenizers` library."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=8192,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts[:1000], trainer)
    tokenizer.save(str(path))


def write_text(folder: Path, texts: list[str]) -> Path:
    """Write documents as JSON lines."""
    folder.mkdir()
    (folder / "text.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
    return folder


def write_pile(folder: Path, ids: np.ndarray[Any, Any]) -> Path:
    """Write TFRecords of T + 1 ids: four files, and one for validation."""
    from mudd_core.base.framing import framed
    from mudd_core.data.formats.example import encoded

    folder.mkdir()
    records = [framed(encoded({"input_ids": row})) for row in ids]
    for n in range(4):
        (folder / f"pile.tfrecord.b{n}").write_bytes(b"".join(records[n::4]))
    (folder / "val_x.tfrecord").write_bytes(b"".join(records[:16]))
    return folder


def write_megatron(folder: Path, ids: np.ndarray[Any, Any]) -> Path:
    """Write one .bin and .idx file of documents of varying length."""
    from mudd_core.data.formats.megatron import head_bytes

    folder.mkdir()
    lengths = np.random.default_rng(0).integers(100, 3000, ids.size // 1550).astype(np.int64)
    flat = ids.reshape(-1)[: int(lengths.sum())].astype("<u2")
    for name in ("text_document", "valid_document"):
        kept = (
            lengths if flat.size == lengths.sum() else lengths[: np.searchsorted(lengths.cumsum(), flat.size)]
        )
        (folder / f"{name}.bin").write_bytes(flat[: int(kept.sum())].tobytes())
        (folder / f"{name}.idx").write_bytes(head_bytes(8, kept, np.arange(kept.size + 1)))
    return folder


def write_features(folder: Path, ids: np.ndarray[Any, Any]) -> Path:
    """Write Parquet rows as jax-lm's preprocessing does."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    rows = ids[:, : SHAPE.T].astype(np.int64)
    columns = {"input_ids": rows, "attention_mask": np.ones_like(rows), "labels": rows}
    table = pa.table({name: pa.array(list(values)) for name, values in columns.items()})
    for name in ("train", "valid"):
        pq.write_table(table, folder / f"{name}-00000-of-00001", compression="none")
    return folder


def corpora(folder: Path, tiny: bool) -> list[Corpus]:
    """Write some million tokens for each measured pipeline, and return the corpora."""
    from mudd_core.config.pipelines import PIPELINES

    texts = documents(0 if tiny else 8_000_000)
    tokenizer = folder / "tokenizer.json"
    write_tokenizer(tokenizer, texts)
    ids = np.random.default_rng(1).integers(1, 8192, (300 if tiny else 6000, SHAPE.T + 1)).astype(np.int64)
    lines, named = write_text(folder / "lines", texts), (f"data.tokenizer={tokenizer}",)
    (folder / "text").mkdir()
    for n, text in enumerate(texts):
        (folder / "text" / f"{n:05}.txt").write_text(text)
    features = write_features(folder / "features", ids)
    made: dict[str, tuple[Path, tuple[str, ...]]] = {
        "text": (folder / "text", named),
        "pack": (lines, (*named, "data.eval_path=" + str(lines))),
        "rows": (lines, named),
        "blocks": (lines, (*named, "data.eval_path=" + str(lines))),
        "pile": (write_pile(folder / "pile", ids), ("data.eval_match=val",)),
        "megatron": (write_megatron(folder / "megatron", ids), ("data.eval_match=valid",)),
        "features": (features, ("data.eval_match=valid",)),
        "synthetic": (folder, ()),
    }
    return [(name, *made[name]) for name in PIPELINES if name in made]


def batches_of(corpus: Corpus, cache: Path) -> Callable[[int], int]:
    """Return a function that reads batch k as training does, and returns the number of tokens in it.

    All caches are built first.
    """
    from mudd_core.config import load_config
    from mudd_core.data.pipelines import RowShape, prepare
    from mudd_core.data.rows import filled

    pipeline, path, words = corpus
    config = load_config(
        "tiny.py",
        [
            f"data.pipeline={pipeline}",
            f"data.path={path}",
            f"data.cache_dir={cache}",
            "model.vocab_size=8192",
            f"train.seq_len={SHAPE.T}",
            f"train.batch_size={SHAPE.B}",
            *words,
        ],
    )
    rows = prepare(config, progress=lambda *_: None).rows("train", RowShape(SHAPE.T, SHAPE.B, seed=1))

    def read(k: int) -> int:
        if rows.core is None:
            arrays = rows.arrays(k * SHAPE.B, SHAPE.B)
        else:
            arrays = filled(rows.core, rows.parts, SHAPE.T, k * SHAPE.B, SHAPE.B)
        return int(arrays["inputs"].size)

    return read


def seconds_of(work: Callable[[], object]) -> float:
    """Return the CPU time of one call: everything runs on one core, which other programs may use too."""
    start = time.process_time()
    work()
    return time.process_time() - start


def reader_row(corpus: Corpus, cache: Path, step: Callable[[], object], rounds: int) -> dict[str, Any]:
    """Measure batches and training steps in turn, and return the table row."""
    read = batches_of(corpus, cache)
    read(0)
    taken, trained = [], []
    for n in range(rounds):
        taken.append(seconds_of(lambda n=n: [read(1 + 10 * n + k) for k in range(10)]) / 10)  # type: ignore[misc]
        trained.append(seconds_of(step))
    ratio = statistics.median(trained) / statistics.median(taken)
    return {
        "name": corpus[0],
        "million tokens/s": SHAPE.tokens / statistics.median(taken) / 1e6,
        "training, thousand tokens/s": SHAPE.tokens / statistics.median(trained) / 1e3,
        "ratio": ratio,
        "bar": READER_BAR,
    }


def tokenize_row(folder: Path, rounds: int) -> dict[str, Any]:
    """Measure the building of a new cache, and the library alone, in turn; return the table row."""
    from tokenizers import Tokenizer

    texts = [path.read_text() for path in sorted((folder / "text").iterdir())]
    size = sum(len(t.encode()) for t in texts)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    corpus = ("text", folder / "text", (f"data.tokenizer={folder / 'tokenizer.json'}",))
    ours, alone = [], []
    for n in range(max(2, rounds // 4)):
        ours.append(seconds_of(lambda n=n: batches_of(corpus, folder / f"cache{n}")))  # type: ignore[misc]
        alone.append(seconds_of(lambda: tokenizer.encode_batch(texts)))
    return {
        "name": "tokenize",
        "MB/s": size / statistics.median(ours) / 1e6,
        "library, MB/s": size / statistics.median(alone) / 1e6,
        "ratio": statistics.median(alone) / statistics.median(ours),
        "bar": TOKENIZE_BAR,
    }


def training_step() -> Callable[[], object]:
    """Return a function that takes one step of the 9M Transformer++."""
    engine = make_engine(SHAPE, "transformer_pp", 0, None)
    tokens = batch_tokens(SHAPE, 0).astype(np.int32)
    batch = {
        "inputs": np.ascontiguousarray(tokens[:, :-1]),
        "targets": np.ascontiguousarray(tokens[:, 1:]),
    }
    numbers = iter(range(1 << 30))
    return lambda: engine.train_step(next(numbers), LR, batch)


def main() -> int:
    """Print the rows and save them; return 1 if a row misses its target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=[], help="names of rows")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tiny", action="store_true", help="little data, to try the program")
    parser.add_argument("--out", type=Path, help="a JSON file for the rows")
    a = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import mudd_core as mc

    mc.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, step = corpora(folder, a.tiny), training_step()
        step()
        for corpus in data:
            if not a.only or corpus[0] in a.only:
                rows.append(reader_row(corpus, folder / "cache", step, a.rounds))
        if not a.only or "tokenize" in a.only:
            rows.append(tokenize_row(folder, a.rounds))
    facts = {"cpu": cpu_name(), "isa": str(mc.isa()), "threads": 1, "shape": SHAPE.name, "commit": commit()}
    print(", ".join(f"{k} {v}" for k, v in facts.items()), "\n")
    for row in rows:
        met = "met" if row["ratio"] >= row["bar"] else "MISSED"
        numbers = ", ".join(f"{v:.1f} {k}" for k, v in row.items() if k not in ("name", "ratio", "bar"))
        print(f"{row['name']:10} {row['ratio']:8.2f} (bar {row['bar']}, {met}): {numbers}")
    if a.out:
        a.out.write_text(row_json.text({**facts, "rows": rows}, 2))
    return int(any(row["ratio"] < row["bar"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
