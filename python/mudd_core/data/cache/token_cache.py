"""Token caches: a folder `<cache_dir>/<fingerprint>` that appears complete or not at all.

    tokens.h5        {train,valid}/ids               token ids; uint16 if the vocabulary has at most
                                              65,536, else uint32
                     {train,valid}/document_starts   uint64, position of the first id of each document
                     {train,valid}/{ids,document_starts}_crc32c   uint32, one for each 1 MiB of their bytes
                     attributes, written last: format, tokenizer, vocabulary, totals, hashes, and the
                                              seal, a SHA-256 over all of these (file.py)
    tokenizer.json   unless the tokenizer is `bytes`; tokenizer.model for a sentencepiece tokenizer
    cache.json       the same totals for people; the folder appears when this file is committed

One EOS follows every document. Datasets are contiguous, so the core reads the ids in place.
documents/cache_request.py builds a cache.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import FormatError
from mudd_core.base.regular_files import open_binary, read_bytes
from mudd_core.base.types import Array
from mudd_core.data.cache.file import BLOCK_BYTES, FORMAT, SPLITS, block_crcs, seal_of
from mudd_core.data.sources.corpus import Split
from mudd_core.data.tokenizers.source import stored_file, stored_tokenizer
from mudd_core.data.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from mudd_core import _h5

# a cache without a seal; this string is part of every cache's name, so it must not change
FORMAT_UNSEALED = "mudd_core token cache 1"
# A cache up to this size is verified when it is opened, a larger one by block at first use.
EAGER_BYTES = 2**28


@dataclass(frozen=True)
class SplitPlace:
    """The location of a split's ids: offset in tokens.h5, count, bytes of an id, CRCs of 1 MiB blocks."""

    offset: int
    count: int
    width: int
    block_crcs: tuple[int, ...]
    documents: int
    text_bytes: int


@dataclass(frozen=True)
class TokenCache:
    """An opened cache. `path` is its folder, `content_hash` the SHA-256 of all ids, train before valid.

    seal: a hash of everything that metrics depend on (file.py); None for a cache of an earlier version.
    """

    path: Path
    fingerprint: str
    corpus_hash: str
    content_hash: str
    seal: str | None
    tokenizer_name: str
    vocab_size: int
    eos_id: int
    train: SplitPlace
    valid: SplitPlace

    @property
    def file(self) -> Path:
        return self.path / "tokens.h5"

    @property
    def n_train_tokens(self) -> int:
        return self.train.count

    @property
    def n_valid_tokens(self) -> int:
        return self.valid.count

    @property
    def valid_bytes(self) -> int:
        """The bytes of validation text: the denominator of bits per byte."""
        return self.valid.text_bytes

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, loaded at first use. Raise FormatError if another tokenizer produced the ids."""
        name = stored_file(self.tokenizer_name)
        data = b"" if name is None else _read(self.path / name)
        made = stored_tokenizer(self.tokenizer_name, data, str(self.path / (name or "")))
        if (made.vocab_size, made.eos_id) != (self.vocab_size, self.eos_id):
            raise FormatError(
                str(self.file),
                0,
                f"vocabulary of {self.vocab_size} with end-of-document id {self.eos_id}, but its tokenizer has "
                f"{made.vocab_size} and {made.eos_id}; {way_out(self.path)}",
            )
        return made

    def place(self, split: Split) -> SplitPlace:
        return self.train if split == "train" else self.valid

    def tokens(self, split: Split) -> Array:
        """Return all ids of a split after a check of their checksums; for analysis, not for training."""
        return _read_checked(self.file, split, "ids")

    def document_starts(self, split: Split) -> npt.NDArray[np.uint64]:
        """Return the position of the first id of each document of a split."""
        return cast("npt.NDArray[np.uint64]", _read_checked(self.file, split, "document_starts"))


def fingerprint_of(corpus_hash: str, tokenizer: str) -> str:
    """Return the name of the cache of a corpus with a tokenizer (its `identity`)."""
    return hashlib.sha256(f"{FORMAT_UNSEALED}\n{corpus_hash}\n{tokenizer}".encode()).hexdigest()[:16]


def open_cache(folder: Path, *, sealed: bool = True) -> TokenCache:
    """Open a cache and verify it (see EAGER_BYTES). Raise FormatError with the damage and a remedy.

    sealed: False also accepts a cache of an earlier version, whose totals have no checksum.
    """
    try:
        return _open(folder, sealed)
    except FormatError as e:
        raise FormatError(e.file, e.offset, f"{e.reason}; {way_out(folder)}") from None


def is_unsealed(folder: Path) -> bool:
    """Return whether a cache was written by an earlier version, without a seal."""
    try:
        with _opened(folder / "tokens.h5") as h5:
            return bool(h5.text("format") == FORMAT_UNSEALED)
    except FormatError:  # the cache is damaged; opening it raises the error
        return False


def way_out(folder: Path) -> str:
    """Return the remedy for a damaged cache, for messages."""
    return f"delete the folder {folder} and run again: it is rebuilt from the text"


def _open(folder: Path, sealed: bool) -> TokenCache:
    from mudd_core import _core

    path = str(folder / "tokens.h5")
    with _opened(folder / "tokens.h5") as h5:
        if h5.text("format") not in ((FORMAT,) if sealed else (FORMAT, FORMAT_UNSEALED)):
            raise FormatError(path, 0, f"format {h5.text('format')!r}, this version reads {FORMAT!r}")
        seal = h5.text("seal") if h5.text("format") == FORMAT else None
        if seal is not None and seal != seal_of(h5, path):
            raise FormatError(
                path, 0, "its totals, hashes or checksums have changed since it was written (seal)"
            )
        places = {s: _place(path, h5, s) for s in SPLITS}
        cache = TokenCache(
            path=folder,
            fingerprint=h5.text("fingerprint"),
            corpus_hash=h5.text("corpus_hash"),
            content_hash=h5.text("content_hash"),
            seal=seal,
            tokenizer_name=h5.text("tokenizer"),
            vocab_size=h5.number("vocab_size"),
            eos_id=h5.number("eos_id"),
            train=places["train"],
            valid=places["valid"],
        )
        tokenizer_hash = h5.text("tokenizer_hash")
    if cache.fingerprint != folder.name:
        raise FormatError(path, 0, f"it is the cache {cache.fingerprint} under the name {folder.name}")
    if cache.fingerprint != fingerprint_of(cache.corpus_hash, cache.tokenizer_name):
        raise FormatError(
            path, 0, f"the fingerprint {cache.fingerprint} does not match its corpus and tokenizer"
        )
    if not 0 <= cache.eos_id < cache.vocab_size <= 2**31 - 1:
        raise FormatError(path, 0, f"vocabulary of {cache.vocab_size} with end-of-document id {cache.eos_id}")
    if (name := stored_file(cache.tokenizer_name)) is not None:
        file = folder / name
        if hashlib.sha256(_read(file)).hexdigest() != tokenizer_hash:
            raise FormatError(str(file), 0, "it is not the tokenizer this cache was built with")
    if (cache.train.count + cache.valid.count) * cache.train.width <= EAGER_BYTES:
        for s in SPLITS:
            p = cache.place(s)
            _core.verify_tokens(
                path=path,
                offset=p.offset,
                count=p.count,
                width=p.width,
                vocab_size=cache.vocab_size,
                block_crcs=p.block_crcs,
            )
    return cache


def _place(path: str, h5: _h5.File, split: Split) -> SplitPlace:
    offset, count, dtype = h5.place(f"{split}/ids")
    total = h5.number(f"{split}_tokens")
    if dtype not in ("uint16", "uint32") or count != total or (count > 0 and offset < 0):
        raise FormatError(
            path, max(offset, 0), f"{split}/ids: {count} ids of {dtype}, but the totals have {total}"
        )
    width = int(np.dtype(dtype).itemsize)
    crcs = tuple(block_crcs(h5, path, f"{split}/ids"))
    if len(crcs) != -(-count * width // BLOCK_BYTES):
        raise FormatError(path, 0, f"{split}/ids_crc32c: {len(crcs)} checksums do not fit {count} ids")
    return SplitPlace(
        max(offset, 0), count, width, crcs, h5.number(f"{split}_documents"), h5.number(f"{split}_text_bytes")
    )


def _opened(file: Path) -> _h5.File:
    """Open the HDF5 file; the library itself would block on a FIFO."""
    from mudd_core import _h5

    try:
        open_binary(file).close()
    except OSError as e:
        raise FormatError(str(file), 0, f"cannot be read: {e.strerror}") from None
    return _h5.File.open(str(file))


def _read(file: Path) -> bytes:
    try:
        return read_bytes(file)
    except OSError as e:
        raise FormatError(str(file), 0, f"cannot be read: {e.strerror}") from None


def _read_checked(file: Path, split: Split, name: str) -> Array:
    from mudd_core import _core

    with _opened(file) as h5:
        values: Array = h5.read(f"{split}/{name}")
        wanted = block_crcs(h5, str(file), f"{split}/{name}")
        offset = h5.place(f"{split}/{name}")[0]
    got = _core.crc32c_blocks(values)
    if len(got) != len(wanted):
        raise FormatError(
            str(file),
            0,
            f"{split}/{name}_crc32c: {len(wanted)} checksums, expected {len(got)}; {way_out(file.parent)}",
        )
    for i, (g, w) in enumerate(zip(got, wanted, strict=True)):
        if g != w:
            raise FormatError(
                str(file),
                offset + i * BLOCK_BYTES,
                f"{split}/{name}: block {i} is damaged; {way_out(file.parent)}",
            )
    values.flags.writeable = False
    return values
