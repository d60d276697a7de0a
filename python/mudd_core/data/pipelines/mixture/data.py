"""The data of a mixture: each source is prepared as if it were alone, with a separate cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.config.mix import MIX
from mudd_core.config.mix_sources import source_config, source_names, weights_by_sample
from mudd_core.data.cache.folder import require_name
from mudd_core.data.pipelines.document_data import DocumentData
from mudd_core.data.pipelines.mixture.ends import end_of
from mudd_core.data.pipelines.mixture.kept import keep_sources, saved_sources
from mudd_core.data.pipelines.mixture.names import naming
from mudd_core.data.pipelines.mixture.rows import MixedRows, MixedValidation
from mudd_core.data.pipelines.mixture.tokenizer import shared_tokenizer
from mudd_core.data.pipelines.text import TextData
from mudd_core.data.rows import Masked, Preparation, Prepared, PrepareOne, Rows, RowShape, Shown
from mudd_core.data.sources.access import cache_root
from mudd_core.data.sources.corpus import Split
from mudd_core.data.streaming.data import StreamData
from mudd_core.data.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class MixedData:
    """The data of several sources. names: of the sources. of: their data, in the same order."""

    config: Config
    names: tuple[str, ...]
    of: tuple[Prepared, ...]
    fingerprint: str

    @property
    def seal(self) -> str | None:
        """A hash of the seals; None if a source has none, as a stream."""
        seals = [data.seal for data in self.of]
        return None if None in seals else hashlib.sha256(json.dumps(seals).encode()).hexdigest()

    @property
    def vocab_size(self) -> int:
        return self.of[0].vocab_size

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self.of[0].tokenizer

    @property
    def train_tokens(self) -> int:
        """The number of training ids of all sources; 0 if one is unknown."""
        tokens = [data.train_tokens for data in self.of]
        return sum(tokens) if all(tokens) else 0

    @property
    def documents(self) -> tuple[int, int]:
        """The numbers of documents in (training, validation) of all sources."""
        return sum(data.documents[0] for data in self.of), sum(data.documents[1] for data in self.of)

    @property
    def counted_share(self) -> float:
        """The fraction of the training targets that have a loss, with the weights of the first phase."""
        weights = weights_by_sample(self.config)[0][1]
        shares = [data.counted_share if isinstance(data, Masked) else 1.0 for data in self.of]
        return sum(w * share for w, share in zip(weights, shares, strict=True)) / sum(weights)

    @cached_property
    def valid_bytes_per_target(self) -> float:
        """The bytes of validation text per target over all sources; 0 if one is unknown."""
        targets = [_targets(data) for data in self.of]
        rates = [data.valid_bytes_per_target for data in self.of]
        if not all(rates) or not sum(targets):
            return 0.0
        return sum(rate * count for rate, count in zip(rates, targets, strict=True)) / sum(targets)

    @cached_property
    def schedule(self) -> _core.MixSchedule:
        """The sources of the samples."""
        return _core.MixSchedule(weights_by_sample(self.config))

    def rows(self, split: Split, shape: RowShape) -> MixedRows | MixedValidation:
        """Return the sequences of a split; raise UserError if a source has too few."""
        found: list[Rows] = []
        for name, data in zip(self.names, self.of, strict=True):
            with naming(name):
                found.append(data.rows(split, shape))
        if split == "valid":
            rates = [data.valid_bytes_per_target for data in self.of]
            return MixedValidation(self.names, found, weights_by_sample(self.config)[0][1], rates)
        end = end_of(self.config, self.schedule, found)
        rates = [data.train_bytes_per_target if isinstance(data, TextData) else 0.0 for data in self.of]
        return MixedRows(self.names, found, self.schedule, end, shape.batch_size, rates)

    def shown(self) -> list[str]:
        """Return the lines that the sources print when a run starts."""
        return [
            f"source {name}: {line}"
            for name, data in zip(self.names, self.of, strict=True)
            if isinstance(data, Shown)
            for line in data.shown()
        ]

    def describe(self) -> list[str]:
        """Return the lines of each source after a line with its name and weight."""
        weights = weights_by_sample(self.config)[0][1]
        lines = [f"mixture     {self.config.data.mix}"]
        for name, weight, data in zip(self.names, weights, self.of, strict=True):
            lines.append(f"source      {name}: {weight / sum(weights):.4%} of the sequences")
            lines += [f"  {line}" for line in data.describe()]
        return lines


def _targets(data: Prepared) -> int:
    """Return the validation targets of a source with a token cache; 0 for others."""
    return max(0, data.cache.n_valid_tokens - 1) if isinstance(data, DocumentData) else 0


def prepare(config: Config, how: Preparation, prepare_one: PrepareOne) -> MixedData:
    """Return the data of all sources of data.mix; raise UserError if their tokenizers differ."""
    root, names = cache_root(config), source_names(config)
    saved = saved_sources(root, how.fingerprint, names)
    shared = shared_tokenizer(config, names, how, saved)
    found: list[Prepared] = []
    for name in names:
        each = Preparation(saved.get(name), how.progress, how.before_build)
        with naming(name):
            found.append(prepare_one(source_config(shared, name), each))
    _require_one_tokenizer(names, found)
    prints = [data.fingerprint for data in found]
    fingerprint = hashlib.sha256(json.dumps(prints).encode()).hexdigest()[:16]
    require_name(how.fingerprint, fingerprint)
    keep_sources(root, fingerprint, dict(zip(names, prints, strict=True)))
    return MixedData(config, names, tuple(found), fingerprint)


def _require_one_tokenizer(names: Sequence[str], of: Sequence[Prepared]) -> None:
    """Raise UserError if the sources have different tokenizers or vocabularies."""
    first, *others = [_identity(data) for data in of]
    for name, found in zip(names[1:], others, strict=True):
        if found != first:
            raise UserError(
                f"[{MIX}] expected one tokenizer for all sources, got {first} for {names[0]} and {found} for {name}; "
                "set data.tokenizer to one of them"
            )


def _identity(data: Prepared) -> str:
    if isinstance(data, DocumentData):
        return data.cache.tokenizer_name
    return data.tokenizer_source.identity if isinstance(data, StreamData) else f"ids:{data.vocab_size}"
