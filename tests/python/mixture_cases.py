"""Helpers of the tests of mixtures: three small sources, and their configs."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from mudd_core.config import Config, load_config
from mudd_core.data.pipelines import RowShape, prepare
from mudd_core.data.rows import Rows
from text_settings import quiet

LENGTH, BATCH = 16, 4
SHAPE = RowShape(LENGTH, BATCH, 7)
WORDS = {"web": "page link site", "code": "def return pass", "own": "note mine"}


def write_sources(folder: Path, documents: int = 30) -> Path:
    """Write a folder of small files for each source."""
    rng = random.Random(3)
    for name, words in WORDS.items():
        (folder / name).mkdir(parents=True)
        for number in range(documents):
            text = " ".join(rng.choice(words.split()) for _ in range(rng.randint(5, 60)))
            (folder / name / f"{number:02}.txt").write_text(f"{text}\n")
    return folder


def files_of(folder: Path, *names: str) -> list[str]:
    """Return the arguments that name the files of the sources."""
    return [f"data.sources.{name}.path={folder / name}" for name in names or WORDS]


def mix_config(folder: Path, *words: str, mix: str = "web:0.7,code:0.2,own:0.1") -> Config:
    """Return the config of a small run on a mixture of all sources."""
    return config_of(folder, *mix_words(folder, *words, mix=mix))


def mix_words(folder: Path, *words: str, mix: str = "web:0.7,code:0.2,own:0.1") -> list[str]:
    """Return the arguments of a mixture of all sources."""
    return [f"data.mix={mix}", *files_of(folder), *words]


def config_of(folder: Path, *words: str) -> Config:
    """Return the config of a small run."""
    return load_config("tiny.py", words_of(folder, *words))


def words_of(folder: Path, *words: str) -> list[str]:
    """Return the arguments of a small run after `--config=tiny.py`."""
    return [
        f"data.cache_dir={folder}/cache",
        "data.tokenizer=bytes",
        "model.vocab_size=257",
        "model.d_model=16",
        "model.n_layer=1",
        "model.n_head=2",
        "model.d_ff=32",
        "train.steps=40",
        f"train.batch_size={BATCH}",
        f"train.seq_len={LENGTH}",
        "train.eval_every=20",
        "train.logical_shards=4",
        "train.threads=1",
        "train.seed=7",
        "eval.max_batches=2",
        *words,
    ]


def rows_of(config: Config, split: Any = "train", shape: RowShape = SHAPE) -> Rows:
    return prepare(config, progress=quiet).rows(split, shape)
