"""The common base of the pipelines whose files contain ids; Python builds their sequences."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import UserError
from mudd_core.base.types import Int32, Int64, Json
from mudd_core.config import Config
from mudd_core.data.cache.folder import require_name
from mudd_core.data.documents.origins import Origin, origins_of
from mudd_core.data.documents.source import file_digest
from mudd_core.data.rows import Rows, RowShape
from mudd_core.data.tokenizers.tokenizer import Tokenizer


class IdRows(ABC):
    """Sequences of T + 1 ids, which a subclass may transform. The subclass defines the order of samples."""

    core = None
    parts: tuple[str, ...] = ()

    def __init__(self, shape: RowShape) -> None:
        self.shape = shape

    @property
    @abstractmethod
    def rows(self) -> int:
        """The number of sequences in a training epoch, or in the whole validation."""

    @abstractmethod
    def batches(self, epochs: int) -> int:
        """Return the number of whole batches in `epochs` training epochs."""

    @abstractmethod
    def ids(self, sample: int) -> Int64 | None:
        """Return the T + 1 ids of a sample; None after the end of a validation."""

    @abstractmethod
    def documents(self, sample: int) -> list[Origin]:
        """Return the documents of a sample."""

    def origins(self, samples: Sequence[int], *, files: bool) -> list[list[Origin]]:
        """Return the documents of each sample, as Located.origins does."""
        return [self.documents(sample) for sample in samples]

    def target_counts(self, targets: Int64) -> npt.NDArray[np.bool_]:
        """Return whether each target has a loss."""
        return np.ones(targets.shape, np.bool_)

    def arrays(self, first_sample: int, n_samples: int) -> dict[str, Int32]:
        inputs = np.zeros((n_samples, self.shape.seq_len), np.int32)
        targets = np.full((n_samples, self.shape.seq_len), -1, np.int32)
        for i in range(n_samples):
            ids = self.ids(first_sample + i)
            if ids is not None:
                inputs[i] = ids[:-1]
                targets[i] = np.where(self.target_counts(ids[1:]), ids[1:], -1)
        return {"inputs": inputs, "targets": targets}


@dataclass(frozen=True)
class FirstBatch:
    """The first `size` sequences of other data, repeated without end."""

    of: Rows
    size: int
    core: None = None

    @property
    def rows(self) -> int:
        return self.of.rows

    @property
    def parts(self) -> tuple[str, ...]:
        return self.of.parts

    def batches(self, epochs: int) -> int | None:
        return self.of.batches(epochs)

    def arrays(self, first_sample: int, n_samples: int) -> Mapping[str, Int32]:
        return self.of.arrays(first_sample % self.size, n_samples)

    def origins(self, samples: Sequence[int], *, files: bool) -> list[list[Origin]]:
        """Return the documents of each sample, as Located.origins does."""
        return origins_of(self.of, [sample % self.size for sample in samples], files=files)


@dataclass(frozen=True)
class IdData:
    """Ids without text. lines: a description of the data for the user."""

    config: Config
    fingerprint: str
    train_tokens: int
    documents: tuple[int, int]
    lines: tuple[str, ...]
    tokenizer: Tokenizer | None = None
    seal: str | None = None
    valid_bytes_per_target: float = 0.0

    @property
    def vocab_size(self) -> int:
        return self.config.model.vocab_size

    def describe(self) -> list[str]:
        return list(self.lines)


def vocabulary_of(config: Config) -> int:
    """Return the model's vocabulary size; raise UserError if the config leaves it to a tokenizer."""
    if config.model.vocab_size < 2:
        raise UserError(
            f"[config] model.vocab_size: data.pipeline={config.data.pipeline} reads ids without a "
            f"tokenizer, so expected the vocabulary size, at least 2, got {config.model.vocab_size}"
        )
    return int(config.model.vocab_size)


def fingerprint_of(files: Sequence[Path], rule: Mapping[str, Json], wanted: str | None) -> str:
    """Return a digest of the files and the rule. Raise UserError if the run was started with another digest."""
    parts = [[file_digest(path) for path in files], rule]
    found = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
    require_name(wanted, found)
    return found


def require_validation(files: Sequence[Path], config: Config) -> None:
    """Raise UserError if there are no validation files."""
    if not files:
        raise UserError(
            f"[data.eval_path] expected the validation files of data.pipeline={config.data.pipeline}, got none; set "
            "data.eval_path, or data.eval_match=TEXT to select the files of data.path with TEXT in their path"
        )


def require_batch(rows: int, shape: RowShape, config: Config) -> None:
    """Raise UserError if there are fewer sequences than one batch needs."""
    if rows < shape.batch_size:
        raise UserError(
            f"[data.path] expected a batch of {shape.batch_size} sequences in {config.data.path!r}, "
            f"got {rows}"
        )
