"""Data of the pipelines that work on documents: their token cache, and what they share of Prepared."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.paths import url_fault
from mudd_core.base.regular_files import read_bytes
from mudd_core.config import Config
from mudd_core.config.pipelines import spec_of
from mudd_core.data.access import Access
from mudd_core.data.cache import TokenCache, open_cache, way_out
from mudd_core.data.corpus import Split
from mudd_core.data.documents.build import cache_name, documents_cache
from mudd_core.data.documents.source import DocumentSource, Frame, document_source
from mudd_core.data.loader import changed, check_name
from mudd_core.data.pipelines.cached import Cached
from mudd_core.data.pipelines.pipeline import Preparation
from mudd_core.data.progress import ConsoleProgress
from mudd_core.data.rows import Rows, RowShape
from mudd_core.data.source_notes import require_unchanged
from mudd_core.data.streaming.choose import is_streamed
from mudd_core.data.streaming.data import StreamData, require_readable, tell
from mudd_core.data.tokenizer_source import TokenizerSource, find_tokenizer


@dataclass(frozen=True)
class DocumentData(Cached, ABC):
    """A token cache of documents. frame: the ids around each. hold_out: by hash, without eval files."""

    config: Config
    cache: TokenCache
    frame: ClassVar[Frame]
    hold_out: ClassVar[bool]

    @property
    def valid_bytes_per_target(self) -> float:
        """0: documents are cut, so the bytes behind a target are unknown."""
        return 0.0

    @abstractmethod
    def rows(self, split: Split, shape: RowShape) -> Rows:
        """The rows of a split; UserError if it has too few."""

    def describe(self) -> list[str]:
        cache = self.cache
        lines = [
            f"cache       {cache.path}",
            f"pipeline    {self.config.data.pipeline}",
            f"tokenizer   {cache.tokenizer_name}, {cache.vocab_size} ids",
        ]
        for name, place in (("train", cache.train), ("valid", cache.valid)):
            lines.append(
                f"{name:<11} {place.documents:,} documents, {place.text_bytes:,} bytes, {place.count:,} tokens"
            )
        return lines

    def file_ends(self) -> list[int]:
        """0, then the training documents up to the end of each file; those of validation have none."""
        file = self.cache.path / "cache.json"
        try:
            counts = json.loads(read_bytes(file))["train_files"]
            ends: list[int] = np.cumsum([0, *counts]).tolist()
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise FormatError(
                str(file), 0, f"no documents of each file: {e}; {way_out(self.cache.path)}"
            ) from None
        if ends[-1] != self.cache.train.documents or min(counts) < 0:
            raise FormatError(
                str(file),
                0,
                f"{ends[-1]} documents of its files, not {self.cache.train.documents}; "
                f"{way_out(self.cache.path)}",
            )
        return ends

    def require_documents(self, split: Split, least: int, why: str) -> int:
        """Documents of a split; UserError for fewer than `least`."""
        found = self.cache.place(split).documents
        if found < least:
            what = "training" if split == "train" else "validation"
            raise UserError(
                f"[data.path] expected at least {least:,} {what} documents ({why}), got {found:,}; use more data"
                + ("" if split == "train" else " or name them with data.eval_path")
            )
        return found


def documents_of(config: Config, how: Preparation, frame: Frame, hold_out: bool) -> TokenCache:
    """The token cache of the documents in the files of a config, built if it is not there."""
    return cached(config, how, lambda: _source_of(config, frame, hold_out))


def whole_or_streamed(
    config: Config, how: Preparation, whole: type[DocumentData], stream: type[StreamData]
) -> DocumentData | StreamData:
    """The documents of a config from their token cache, or as a stream where data.cache says so and none is there."""
    found = _located(config, how, lambda: _source_of(config, whole.frame, whole.hold_out), None)
    if isinstance(found, TokenCache):
        return whole(config, found)
    if not is_streamed(config, found.source):
        return whole(config, _built(found, how))
    if how.before_build is not None:
        how.before_build()
    require_readable(found.source)
    tell(found.source, config.data.pipeline, how.progress)
    return stream(config, found.source, found.tokenizer, found.name, found.root, how.progress)


def _source_of(config: Config, frame: Frame, hold_out: bool) -> DocumentSource:
    for field in ("path", "eval_path", "tokenizer"):
        if (fault := url_fault(getattr(config.data, field))) is not None:
            raise UserError(f"[data.{field}] {fault}")
    return document_source(config.data, frame, hold_out=hold_out)


def cached(
    config: Config,
    how: Preparation,
    source_of: Callable[[], DocumentSource],
    tokenizer: TokenizerSource | None = None,
) -> TokenCache:
    """The token cache of a source, built if it is not there. tokenizer: None takes data.tokenizer."""
    found = _located(config, how, source_of, tokenizer)
    return found if isinstance(found, TokenCache) else _built(found, how)


@dataclass(frozen=True)
class _Missing:
    """What a cache is built of that is not there."""

    root: Path
    name: str
    source: DocumentSource
    tokenizer: TokenizerSource


def _located(
    config: Config,
    how: Preparation,
    source_of: Callable[[], DocumentSource],
    tokenizer: TokenizerSource | None,
) -> TokenCache | _Missing:
    settings = config.data
    if (fault := url_fault(settings.cache_dir)) is not None:
        raise UserError(f"[data.cache_dir] {fault}")
    root = Path(settings.cache_dir or "runs/cache").absolute()
    if how.fingerprint is not None:
        check_name(how.fingerprint)
        if (root / how.fingerprint).is_dir():
            return open_cache(root / how.fingerprint)
    source = source_of()
    if how.progress is None:
        for warning in source.warnings:
            print(f"warning: [data] {warning}", file=sys.stderr)
    found = tokenizer or find_tokenizer(settings.tokenizer, settings.vocab_size, Access.of(config))
    earlier = cache_name(source, found)  # before pipelines read names of special tokens
    if not spec_of(settings.pipeline).plain_text and how.fingerprint != earlier:
        found = found.reading_names()
    name = cache_name(source, found)
    if how.fingerprint is not None and name != how.fingerprint:
        raise UserError(changed(how.fingerprint, name))
    if (root / name).is_dir():
        require_unchanged(root, name, source.whole_files())
        return open_cache(root / name)
    return _Missing(root, name, source, found)


def _built(found: _Missing, how: Preparation) -> TokenCache:
    if how.before_build is not None:
        how.before_build()
    console = ConsoleProgress()
    cache = documents_cache(found.root, found.source, found.tokenizer, how.progress or console)
    if how.progress is None:
        console.close(
            f"{cache.train.documents} + {cache.valid.documents} documents, {cache.n_train_tokens} + "
            f"{cache.n_valid_tokens} tokens, vocabulary {cache.vocab_size}; cache {cache.path}"
        )
    return cache
