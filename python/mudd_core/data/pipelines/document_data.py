"""The common base of the pipelines that work on documents: their token cache and the properties of Prepared."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.surroundings import notes_stream
from mudd_core.config import Config
from mudd_core.config.pipelines import PIPELINES, spec_of
from mudd_core.data.cache.folder import saved_cache
from mudd_core.data.cache.token_cache import TokenCache, fingerprint_of, way_out
from mudd_core.data.documents.cache_request import CacheRequest
from mudd_core.data.documents.origins import Place
from mudd_core.data.documents.places import places_in
from mudd_core.data.documents.source import DocumentSource, Frame, document_source, dropped_of
from mudd_core.data.rows import Preparation, Rows, RowShape
from mudd_core.data.sources.access import Access, local_root, require_local
from mudd_core.data.sources.corpus import Split
from mudd_core.data.sources.splits import TAKES_ALL
from mudd_core.data.streaming.data import StreamData, is_streamed, require_readable, tell
from mudd_core.data.tokenizers.source import TokenizerSource, find_tokenizer
from mudd_core.data.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class DocumentData(ABC):
    """A token cache of documents.

    frame: the ids around each document. hold_out: select validation documents by hash, because there are no eval files.
    """

    config: Config
    cache: TokenCache
    frame: ClassVar[Frame]
    hold_out: ClassVar[bool]

    @property
    def fingerprint(self) -> str:
        return self.cache.fingerprint

    @property
    def seal(self) -> str | None:
        return self.cache.seal

    @property
    def vocab_size(self) -> int:
        return self.cache.vocab_size

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self.cache.tokenizer

    @property
    def train_tokens(self) -> int:
        return self.cache.n_train_tokens

    @property
    def documents(self) -> tuple[int, int]:
        """The numbers of documents in (training, validation)."""
        return self.cache.train.documents, self.cache.valid.documents

    @property
    def valid_bytes_per_target(self) -> float:
        """Return 0: documents are truncated, so the number of bytes per target is unknown."""
        return 0.0

    @abstractmethod
    def rows(self, split: Split, shape: RowShape) -> Rows:
        """Return the sequences of a split; raise UserError if it has too few."""

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
        if note := dropped_of(cache):
            lines.append(f"warning     {note}")
        return lines

    def file_ends(self) -> list[int]:
        """Return 0, then the number of training documents up to the end of each file.

        Validation files are not included.
        """
        file = self.cache.path / "cache.json"
        try:
            counts = json.loads(read_bytes(file))["train_files"]
            ends: list[int] = np.cumsum([0, *counts]).tolist()
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise FormatError(
                str(file),
                0,
                f"the cache does not list the documents of each file: {e}; {way_out(self.cache.path)}",
            ) from None
        if ends[-1] != self.cache.train.documents or min(counts) < 0:
            raise FormatError(
                str(file),
                0,
                f"it lists {ends[-1]} documents, expected {self.cache.train.documents}; "
                f"{way_out(self.cache.path)}",
            )
        return ends

    def places(self, numbers: Collection[int]) -> dict[int, Place]:
        """Return the places of training documents by their numbers; an empty dict if the data are gone or have changed.

        The files of these documents are read.
        """
        if self.config.data.pipeline not in PIPELINES:  # a reader function of the user
            return {}
        try:
            source = _source_of(self.config, Preparation(self.fingerprint), type(self))
            if source.digest() != self.cache.corpus_hash:
                return {}
            return places_in(source.train, self.file_ends(), numbers, hold_out=source.hold_out)
        except (UserError, FormatError, OSError):
            return {}

    def require_documents(self, split: Split, least: int, why: str) -> int:
        """Return the number of documents of a split; raise UserError if there are fewer than `least`."""
        found = self.cache.place(split).documents
        if found < least:
            what = "training" if split == "train" else "validation"
            raise UserError(
                f"[data.path] expected at least {least:,} {what} documents ({why}), got {found:,}; use more data"
                + ("" if split == "train" else " or name them with data.eval_path")
            )
        return found


def documents_of(config: Config, how: Preparation, whole: type[DocumentData]) -> TokenCache:
    """Return the token cache of the documents in the files of a config; build it if it does not exist."""
    return cached(config, how, lambda: _source_of(config, how, whole))


def whole_or_streamed(
    config: Config, how: Preparation, whole: type[DocumentData], stream: type[StreamData]
) -> DocumentData | StreamData:
    """Return the documents from their token cache; stream them if there is none and data.cache permits it."""
    if (saved := saved_cache(local_root(config.data.cache_dir), how.fingerprint)) is not None:
        return whole(config, saved)
    source = _source_of(config, how, whole)
    request = _request(config, how, source, None)
    if (found := request.found()) is not None:
        return whole(config, found)
    if not is_streamed(config, source):
        return whole(config, request.built())
    if how.before_build is not None:
        how.before_build()
    require_readable(source)
    tell(source, config.data.pipeline, how.progress)
    name = next(iter(request.names(source.digest())))
    return stream(config, source, request.tokenizer, name, request.root, how.progress)


def _source_of(config: Config, how: Preparation, whole: type[DocumentData]) -> DocumentSource:
    for name in ("path", "eval_path", "tokenizer"):
        require_local(name, getattr(config.data, name))
    resumed = how.fingerprint is not None
    return document_source(config.data, whole.frame, hold_out=whole.hold_out, resumed=resumed)


def cached(
    config: Config,
    how: Preparation,
    source_of: Callable[[], DocumentSource],
    tokenizer: TokenizerSource | None = None,
) -> TokenCache:
    """Return the token cache of a source; build it if it does not exist. tokenizer: None means data.tokenizer."""
    saved = saved_cache(local_root(config.data.cache_dir), how.fingerprint)
    return _request(config, how, source_of(), tokenizer).cache() if saved is None else saved


def _request(
    config: Config, how: Preparation, source: DocumentSource, tokenizer: TokenizerSource | None
) -> CacheRequest:
    settings = config.data
    if how.progress is None:
        for note in source.notes:
            print(f"data: {note}", file=notes_stream())
        for warning in source.warnings:
            print(f"warning: [data] {warning}", file=sys.stderr)
    found = tokenizer or find_tokenizer(settings.tokenizer, settings.vocab_size, Access.of(config))
    # The cache's name in versions whose pipelines did not read special tokens.
    earlier = fingerprint_of(source.digest(), found.identity)
    if not spec_of(settings.pipeline).plain_text and how.fingerprint != earlier:
        found = found.reading_names()
    # Earlier versions trained on every file of such a folder.
    hint = f", add data.split=all ({TAKES_ALL})" if any(TAKES_ALL in note for note in source.notes) else ""
    return CacheRequest(local_root(settings.cache_dir), source, found, how, hint)
