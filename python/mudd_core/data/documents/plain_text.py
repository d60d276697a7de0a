"""Plain text in files: its documents, their token cache, and the note that avoids reading it again.

A cache is named by the hash of the text, so it never becomes stale. Only the note `listing-<source>.json` could become
stale: it maps the digest of (name, size, mtime, ctime, inode) of every file to the corpus hash. If the digest differs,
the text is read and hashed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import Json
from mudd_core.config.data import DocumentRule
from mudd_core.data.cache.file import SPLITS
from mudd_core.data.cache.folder import as_it_is, saved_cache
from mudd_core.data.cache.token_cache import TokenCache, is_unsealed, way_out
from mudd_core.data.documents.cache_request import CacheRequest
from mudd_core.data.documents.origins import Place
from mudd_core.data.documents.places import MOST_READ
from mudd_core.data.documents.source import CacheForm, DocumentSource, grouped
from mudd_core.data.progress import end_on_request
from mudd_core.data.rows import Preparation
from mudd_core.data.sources.access import LOCAL, Access, local_root, require_local
from mudd_core.data.sources.boundaries import rule_named
from mudd_core.data.sources.corpus import Corpus, Document, Progress, Split, scan_listing
from mudd_core.data.sources.listing import list_files
from mudd_core.data.tokenizers.source import find_tokenizer


@dataclass(frozen=True)
class CorpusTexts:
    """The documents of a split that a scan has found and hashed.

    files: empty, because the corpus hash identifies them.
    """

    split: Split
    documents: tuple[Document, ...]
    files: tuple[Path, ...] = ()

    def texts(self) -> Iterator[tuple[int, bytes]]:
        """Yield (0, document); raise UserError if a document differs from the hashed one."""
        return ((0, document.read()) for document in self.documents)

    def groups(self) -> list[CorpusTexts]:
        """Return groups of consecutive documents."""
        return [replace(self, documents=group) for group in grouped(self.documents, lambda one: one.size)]

    def whole_files(self) -> list[Path]:
        return []

    def identity(self) -> list[Json]:
        return [document.digest.hex() for document in self.documents]


def corpus_source(corpus: Corpus) -> DocumentSource:
    """Return the documents of a corpus, each followed by one EOS."""
    form = CacheForm(
        content=corpus.hash,
        documents={split: len(corpus.documents(split)) for split in SPLITS},
        header={"corpus": corpus.name, "files_left_out": corpus.left_out},
        indent=1,
        lists_files=False,
    )
    return DocumentSource(
        CorpusTexts("train", corpus.train), CorpusTexts("valid", corpus.valid), "end", False, form=form
    )


class PlainText:
    """The text of data.path, as the Origin of a cache.

    root: the folder of caches, which is excluded from the text. rule: of data.document.
    """

    def __init__(self, path: str, root: Path, rule: DocumentRule = "auto") -> None:
        self.listing, self._rule = list_files(path, root), rule
        self._is_settled = self.listing.is_settled()  # measured before the text is read
        named = self.listing.source + ("" if rule == "auto" else f"\0{rule}")
        source = hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._note = root / f"listing-{source}.json"
        self._corpus: Corpus | None = None

    def digest(self) -> str | None:
        """Return the corpus hash of an unchanged listing; None if the note is missing or cannot be used."""
        try:
            note = json.loads(read_bytes(self._note))
            known = note["digest"] == self.listing.digest()
            return str(note["corpus_hash"]) if known else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def whole_files(self) -> list[Path]:
        return []

    def read(self, progress: Progress) -> DocumentSource:
        """Read and hash all of the text; raise UserError if the corpus is empty or too small."""

        def reading(phase: str, done: int, total: int) -> None:
            end_on_request(phase)
            progress(phase, done, total)

        self._corpus = scan_listing(self.listing, reading, self._rule)
        return corpus_source(self._corpus)

    def accept(self, cache: TokenCache) -> str:
        """Write the note, and return a line about skipped files or an empty string.

        Raise FormatError if the totals of the cache differ from the text.
        """
        corpus = self._corpus
        assert corpus is not None
        for split in SPLITS:
            place, documents = cache.place(split), corpus.documents(split)
            if (place.documents, place.text_bytes) != (len(documents), corpus.size(split)):
                raise FormatError(
                    str(cache.file),
                    0,
                    f"{split}: {place.documents} documents of {place.text_bytes} bytes, but the text has "
                    f"{len(documents)} of {corpus.size(split)}; {way_out(cache.path)}",
                )
        if self._is_settled:
            self._keep_note(corpus.hash)
        left = [
            f"{count} {what} left out"
            for count, what in ((corpus.left_out, "files that are not text"), (self.listing.links, "links"))
            if count
        ]
        return f"{corpus.name}: {', '.join(left)}" if left else ""

    def _keep_note(self, corpus_hash: str) -> None:
        from mudd_core import _core

        note = {
            "source": self.listing.source.encode("utf-8", "backslashreplace").decode(),
            "digest": self.listing.digest(),
            "corpus_hash": corpus_hash,
        }
        with contextlib.suppress(OSError):  # without the note, the next start only reads the text again
            _core.replace_file(str(self._note), json.dumps(note, indent=1).encode())


class DataSettings(Protocol):
    """The fields that `prepare` reads; `config.DataConfig` has them."""

    @property
    def path(self) -> str: ...
    @property
    def tokenizer(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def cache_dir(self) -> str: ...
    @property
    def document(self) -> str: ...


def prepare(
    settings: DataSettings,
    *,
    fingerprint: str | None = None,
    progress: Progress | None = None,
    before_build: Callable[[], None] | None = None,
    access: Access = LOCAL,
) -> TokenCache:
    """Return the token cache of `settings`; build it if it does not exist.

    fingerprint: the name of the cache that a run was started with. This cache is opened if it exists, even if the text
    has changed. Raise UserError if it would have to be rebuilt from changed text. progress: called with (phase, done,
    total); the default prints to the terminal. before_build: called before text is read for a new cache; it may raise.
    access: permits or forbids downloads. Raise UserError for a missing path or a corpus that is empty or too small, and
    FormatError for a damaged cache or tokenizer.
    """
    return text_cache(settings, Preparation(fingerprint, progress, before_build), access)


def text_cache(settings: DataSettings, how: Preparation, access: Access) -> TokenCache:
    """Return the token cache of `settings`; `prepare` describes the parameters."""
    root = local_root(settings.cache_dir)
    try:
        if (saved := saved_cache(root, how.fingerprint)) is not None:
            return saved
        if how.fingerprint is None or not is_unsealed(root / how.fingerprint):
            return _request(root, settings, how, access).cache()
        try:
            return _request(root, settings, replace(how, before_build=None), access).cache()
        except UserError as e:  # the text has changed or is gone, but the run must continue
            return as_it_is(root / how.fingerprint, e)
    except (
        PermissionError
    ) as e:  # a parent folder is not readable; other errors already name the failed operation
        raise UserError(f"[data.cache_dir] {root}: {e.strerror}") from None


def files_of(settings: DataSettings, cache: TokenCache, numbers: Collection[int]) -> dict[int, Place]:
    """Return the places of training documents by their numbers in a cache of plain text.

    All of the text is read and hashed. The result is empty if it is gone, has changed since the cache was built, or has
    more than 4 GiB.
    """
    if cache.train.text_bytes > MOST_READ:
        return {}
    try:
        listing = list_files(settings.path, local_root(settings.cache_dir))
        corpus = scan_listing(listing, None, rule_named(settings.document))
    except (UserError, OSError):
        return {}
    if corpus.hash != cache.corpus_hash:
        return {}
    counts = Counter(one.path for one in (*corpus.train, *corpus.valid))

    def place(one: Document) -> Place:
        return Place(Path(os.fsdecode(one.path)), byte=one.start if counts[one.path] > 1 else None)

    return {number: place(corpus.train[number]) for number in numbers}


def _request(root: Path, settings: DataSettings, how: Preparation, access: Access) -> CacheRequest:
    for name, value in (("path", settings.path), ("tokenizer", settings.tokenizer)):
        require_local(name, value)  # sources/hub_datasets.py has replaced hub names by paths
    tokenizer = find_tokenizer(settings.tokenizer, settings.vocab_size, access)
    return CacheRequest(root, PlainText(settings.path, root, rule_named(settings.document)), tokenizer, how)
