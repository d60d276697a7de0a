"""The pipeline `synthetic`: unlimited random ids from data.seed, to time a model without data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Int32
from mudd_core.config import Config
from mudd_core.data.rows import Pipeline, Preparation, RowShape
from mudd_core.data.sources.corpus import Split
from mudd_core.data.tokenizers.tokenizer import Tokenizer

PARTS: tuple[str, ...] = ()
_VALID_ROWS = 64


@dataclass(frozen=True)
class SyntheticRows:
    """Sequences of T + 1 draws. Sample s starts at draw s (T + 1) of NumPy's Philox keyed by (seed, split)."""

    split: Split
    shape: RowShape
    vocab_size: int
    core: None = None

    @property
    def rows(self) -> int:
        return _VALID_ROWS

    @property
    def parts(self) -> tuple[str, ...]:
        return PARTS

    def batches(self, epochs: int) -> int:
        raise UserError("[data.epochs] data.pipeline=synthetic has no end; set data.epochs=0")

    def arrays(self, first_sample: int, n_samples: int) -> dict[str, Int32]:
        ids = np.stack([self._row(first_sample + i) for i in range(n_samples)])
        targets = np.ascontiguousarray(ids[:, 1:])
        if self.split == "valid":
            targets[max(0, _VALID_ROWS - first_sample) :] = -1
        return {"inputs": np.ascontiguousarray(ids[:, :-1]), "targets": targets}

    def _row(self, sample: int) -> Int32:
        key = [self.shape.seed, 1 if self.split == "valid" else 0]
        draws = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, sample, 0]))
        return draws.integers(0, self.vocab_size, self.shape.seq_len + 1, np.int32)


@dataclass(frozen=True)
class SyntheticData:
    """Ids without text."""

    vocab_size: int
    tokenizer: Tokenizer | None = None
    seal: str | None = None
    valid_bytes_per_target: float = 0.0
    train_tokens: int = 0
    documents: tuple[int, int] = (0, 0)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"synthetic {self.vocab_size}".encode()).hexdigest()[:16]

    def rows(self, split: Split, shape: RowShape) -> SyntheticRows:
        return SyntheticRows(split, shape, self.vocab_size)

    def describe(self) -> list[str]:
        return [f"pipeline    synthetic: random ids below {self.vocab_size:,}, without end"]


def prepare(config: Config, how: Preparation) -> SyntheticData:
    """Return the data without reading anything; raise UserError if the config has no vocabulary size."""
    if config.model.vocab_size < 2:
        raise UserError(
            "[config] model.vocab_size: data.pipeline=synthetic has no tokenizer, so expected the "
            f"vocabulary size, got {config.model.vocab_size}"
        )
    return SyntheticData(config.model.vocab_size)


PIPELINE = Pipeline("synthetic", PARTS, prepare)
