"""`prepare`: the token cache of a config, found or built.

How a stale cache is noticed: a cache is named by the hash of the text, so it is never stale itself. What
could be stale is the note `listing-<source>.json` that saves reading the text again: it pairs the digest of
(name, size, mtime, ctime, inode) of every file with the corpus hash. A difference means that the text is
read and hashed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.paths import url_fault
from mudd_core.base.regular_files import read_bytes
from mudd_core.data import corpus as corpora
from mudd_core.data.access import LOCAL, Access
from mudd_core.data.cache import SPLITS, TokenCache, fingerprint_of, is_unsealed, open_cache, way_out
from mudd_core.data.cache_folder import as_it_is, is_current
from mudd_core.data.corpus import Progress
from mudd_core.data.documents.build import cache_name, documents_cache
from mudd_core.data.documents.corpus_texts import corpus_source
from mudd_core.data.listing import Listing, list_files
from mudd_core.data.progress import ConsoleProgress, end_on_request
from mudd_core.data.tokenizer_source import find_tokenizer

_TEXT_BYTES_A_TOKEN = 3  # of BPE, rather too few: for estimates


class DataSettings(Protocol):
    """The fields `prepare` reads; `config.DataConfig` has them."""

    @property
    def path(self) -> str: ...
    @property
    def tokenizer(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def cache_dir(self) -> str: ...


def prepare(
    settings: DataSettings,
    *,
    fingerprint: str | None = None,
    progress: Progress | None = None,
    before_build: Callable[[], None] | None = None,
    access: Access = LOCAL,
) -> TokenCache:
    """The token cache of `settings`, built if it does not exist.

    fingerprint: the cache a run was started with. It is opened if it still stands, whatever the text is now;
    if it must be built again and the text has changed meanwhile, UserError. progress: called with (phase,
    done, total); default is the terminal. before_build: called before text is read for a new cache; it may
    raise. access: how far names may reach. UserError for a missing path and an empty or too small corpus;
    FormatError for a damaged cache or tokenizer.
    """
    _refuse_urls(settings, "cache_dir")
    root = Path(settings.cache_dir or "runs/cache").absolute()
    try:
        return _prepare(root, settings, fingerprint, progress, before_build, access)
    except PermissionError as e:  # of a folder above: others know what they could not do
        raise UserError(f"[data.cache_dir] {root}: {e.strerror}") from None


def _prepare(
    root: Path,
    settings: DataSettings,
    fingerprint: str | None,
    progress: Progress | None,
    before_build: Callable[[], None] | None,
    access: Access,
) -> TokenCache:
    if fingerprint is None:
        return _from_text(root, settings, None, progress, before_build, access)
    check_name(fingerprint)
    if not is_unsealed(root / fingerprint):
        if (root / fingerprint).is_dir():
            return open_cache(root / fingerprint)
        return _from_text(root, settings, fingerprint, progress, before_build, access)
    try:
        return _from_text(root, settings, fingerprint, progress, None, access)
    except UserError as e:  # the text has changed or is gone, and the run shall go on
        return as_it_is(root / fingerprint, e)


def bytes_to_build(settings: DataSettings, access: Access = LOCAL) -> int:
    """Estimate the size of the token cache that `prepare` would build; 0 where it exists. Reads no text."""
    root = Path(settings.cache_dir or "runs/cache").absolute()
    identity = find_tokenizer(settings.tokenizer, settings.vocab_size, access).identity
    listing = list_files(settings.path, root)
    corpus_hash = _noted_hash(root, listing)
    if corpus_hash is not None and is_current(root / fingerprint_of(corpus_hash, identity)):
        return 0
    text = sum(file.size for file in listing.files)
    tokens = text if settings.tokenizer == "bytes" else text // _TEXT_BYTES_A_TOKEN
    return tokens * (2 if settings.vocab_size <= 65536 else 4)


def _from_text(
    root: Path,
    settings: DataSettings,
    fingerprint: str | None,
    progress: Progress | None,
    before_build: Callable[[], None] | None,
    access: Access,
) -> TokenCache:
    """The cache of the text that is there now."""
    _refuse_urls(settings, "path", "tokenizer")  # reach.py has made paths of them
    source = find_tokenizer(settings.tokenizer, settings.vocab_size, access)
    tokenizer = source.identity
    listing = list_files(settings.path, root)
    settled = listing.is_settled()
    corpus_hash = _noted_hash(root, listing)
    if corpus_hash is not None and is_current(root / fingerprint_of(corpus_hash, tokenizer)):
        return _wanted(open_cache(root / fingerprint_of(corpus_hash, tokenizer)), fingerprint)
    if before_build is not None:
        before_build()
    console = ConsoleProgress()
    told = progress or console
    corpus = corpora.scan_listing(listing, _ends_on_request(told))
    documents = corpus_source(corpus)
    name = cache_name(documents, source)
    if fingerprint is not None and name != fingerprint:
        raise UserError(changed(fingerprint, name))
    cache = documents_cache(
        root, documents, source, told
    )  # there already where only the note was out of date
    _compare(cache, corpus)
    if settled:
        _note_hash(root, listing, corpus.hash)
    if progress is None:
        console.close(summary(cache, corpus))
    return cache


def _refuse_urls(settings: DataSettings, *fields: str) -> None:
    for field in fields:
        if (fault := url_fault(getattr(settings, field))) is not None:
            raise UserError(f"[data.{field}] {fault}")


def _ends_on_request(progress: Progress) -> Progress:
    """The same, which a stop ends."""

    def told(phase: str, done: int, total: int) -> None:
        end_on_request(phase)
        progress(phase, done, total)

    return told


def _compare(cache: TokenCache, corpus: corpora.Corpus) -> None:
    """FormatError if the totals of a cache are not those of its text."""
    for split in SPLITS:
        place, documents = cache.place(split), corpus.documents(split)
        if (place.documents, place.text_bytes) != (len(documents), corpus.size(split)):
            raise FormatError(
                str(cache.file),
                0,
                f"{split}: {place.documents} documents of {place.text_bytes} bytes, but the text has "
                f"{len(documents)} of {corpus.size(split)}; {way_out(cache.path)}",
            )


def summary(cache: TokenCache, corpus: corpora.Corpus) -> str:
    """One line about a corpus and its cache; the hash is what makes two runs comparable."""
    left_out = f", {corpus.left_out} files that are not text left out" if corpus.left_out else ""
    return (
        f"{corpus.name}: {len(corpus.train)} + {len(corpus.valid)} documents, "
        f"{cache.train_bytes} + {cache.valid_bytes} bytes{left_out}, SHA-256 {corpus.hash}; "
        f"{cache.n_train_tokens} + {cache.n_valid_tokens} tokens, "
        f"vocabulary {cache.vocab_size}; cache {cache.path}"
    )


def check_name(fingerprint: str) -> None:
    """UserError unless this can be the name of a cache."""
    if len(fingerprint) != 16 or set(fingerprint) - set("0123456789abcdef"):
        raise UserError(f"[data] fingerprint: expected 16 hexadecimal digits, got {fingerprint!r}")


def changed(wanted: str, got: str) -> str:
    """What a run says whose cache is gone, and whose text gives another one."""
    return (
        f"[data.path] text or tokenizer is not what this run was started with: cache {wanted} is gone "
        f"and what is there now is {got}; put the old text back or start a new run in another work directory"
    )


def _wanted(cache: TokenCache, fingerprint: str | None) -> TokenCache:
    if fingerprint is not None and cache.fingerprint != fingerprint:
        raise UserError(changed(fingerprint, cache.fingerprint))
    return cache


def _note_of(root: Path, listing: Listing) -> Path:
    source = hashlib.sha256(listing.source.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return root / f"listing-{source}.json"


def _noted_hash(root: Path, listing: Listing) -> str | None:
    """Corpus hash of an unchanged listing; anything odd about the note means that there is none."""
    try:
        note = json.loads(read_bytes(_note_of(root, listing)))
        known = note["digest"] == listing.digest()
        return str(note["corpus_hash"]) if known else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _note_hash(root: Path, listing: Listing, corpus_hash: str) -> None:
    from mudd_core import _core

    note = {
        "source": listing.source.encode("utf-8", "backslashreplace").decode(),
        "digest": listing.digest(),
        "corpus_hash": corpus_hash,
    }
    with contextlib.suppress(OSError):  # without the note the text is read again, nothing else
        _core.replace_file(str(_note_of(root, listing)), json.dumps(note, indent=1).encode())
