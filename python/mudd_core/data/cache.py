"""Token caches: a folder `<cache_dir>/<fingerprint>` that appears whole or not at all.

    tokens.h5        {train,valid}/ids               token ids; uint16 if the vocabulary has at most
                                              65,536, else uint32
                     {train,valid}/document_starts   uint64, position of the first id of each document
                     {train,valid}/{ids,document_starts}_crc32c   uint32, one for each 1 MiB of their bytes
                     attributes, written last: format, tokenizer, vocabulary, totals, hashes
    tokenizer.json   unless the tokenizer is `bytes`
    cache.json       the same totals for people; its commit is what makes the folder appear

Every document is followed by one end-of-document id. Datasets are contiguous, so the core reads the ids in
place. A build works in `<fingerprint>.tmp-<pid>`; one that was killed leaves only that, which the next start
removes. Builds of equal text give equal bytes.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from mudd_core.data.corpus import Corpus, Document, Progress, Split
from mudd_core.data.tokenize import ByteTokenizer, JsonTokenizer, Tokenizer, read_tokenizer_json, train_bpe
from mudd_core.errors import FormatError, SaveError, UserError

FORMAT = "mudd_core token cache 1"
SPLITS: tuple[Split, Split] = ("train", "valid")
BLOCK_BYTES = 2**20  # of a checksum, and of a write
EAGER_BYTES = (
    2**28
)  # caches up to this size are verified when opened, larger ones block by block at first use
ENCODE_BYTES = 2**22  # text given to the tokenizer at once


@dataclass(frozen=True)
class SplitPlace:
    """Where the ids of a split lie: offset in tokens.h5, number, bytes of an id, CRCs of 1 MiB blocks."""

    offset: int
    count: int
    width: int
    block_crcs: tuple[int, ...]
    documents: int
    text_bytes: int


@dataclass(frozen=True)
class TokenCache:
    """An opened cache. `path` is its folder, `content_hash` the SHA-256 of all ids, train before valid."""

    path: Path
    fingerprint: str
    corpus_hash: str
    content_hash: str
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
    def train_bytes(self) -> int:
        """Bytes of training text."""
        return self.train.text_bytes

    @property
    def valid_bytes(self) -> int:
        """Bytes of validation text: the denominator of bits per byte."""
        return self.valid.text_bytes

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """encode, decode and stream; made at first use."""
        if self.tokenizer_name == "bytes":
            return ByteTokenizer()
        file = self.path / "tokenizer.json"
        return JsonTokenizer(_read(file), str(file))

    def place(self, split: Split) -> SplitPlace:
        return self.train if split == "train" else self.valid

    def tokens(self, split: Split) -> npt.NDArray[np.unsignedinteger[Any]]:
        """All ids of a split, read and compared with their checksums; for analysis, not for training."""
        return _read_checked(self.file, split, "ids")

    def document_starts(self, split: Split) -> npt.NDArray[np.uint64]:
        """Position of the first id of each document of a split."""
        return cast("npt.NDArray[np.uint64]", _read_checked(self.file, split, "document_starts"))


def fingerprint_of(corpus_hash: str, tokenizer: str) -> str:
    """Name of the cache of a corpus under a tokenizer (its `identity`)."""
    return hashlib.sha256(f"{FORMAT}\n{corpus_hash}\n{tokenizer}".encode()).hexdigest()[:16]


def open_cache(folder: Path) -> TokenCache:
    """Opens a cache and verifies it (see EAGER_BYTES). FormatError names what is damaged and the way out."""
    try:
        return _open(folder)
    except FormatError as e:
        raise FormatError(e.file, e.offset, f"{e.reason}; {way_out(folder)}") from None


def way_out(folder: Path) -> str:
    """What to do about a damaged cache."""
    return f"delete the folder {folder} and run again: it is built anew from the text"


def _open(folder: Path) -> TokenCache:
    from mudd_core import _core, _h5

    path = str(folder / "tokens.h5")
    with _h5.File.open(path) as h5:
        if h5.text("format") != FORMAT:
            raise FormatError(path, 0, f"format {h5.text('format')!r}, this version reads {FORMAT!r}")
        places = {s: _place(path, h5, s) for s in SPLITS}
        cache = TokenCache(
            path=folder,
            fingerprint=h5.text("fingerprint"),
            corpus_hash=h5.text("corpus_hash"),
            content_hash=h5.text("content_hash"),
            tokenizer_name=h5.text("tokenizer"),
            vocab_size=h5.number("vocab_size"),
            eos_id=h5.number("eos_id"),
            train=places["train"],
            valid=places["valid"],
        )
        tokenizer_hash = h5.text("tokenizer_hash")
    if not 0 <= cache.eos_id < cache.vocab_size <= 2**31 - 1:
        raise FormatError(path, 0, f"vocabulary of {cache.vocab_size} with end-of-document id {cache.eos_id}")
    if cache.tokenizer_name != "bytes":
        file = folder / "tokenizer.json"
        if hashlib.sha256(_read(file)).hexdigest() != tokenizer_hash:
            raise FormatError(str(file), 0, "it is not the tokenizer this cache was built with")
    if (cache.train.count + cache.valid.count) * cache.train.width <= EAGER_BYTES:
        for s in SPLITS:
            p = cache.place(s)
            _core.verify_tokens(
                path=path, offset=p.offset, count=p.count, width=p.width, vocab_size=cache.vocab_size,
                block_crcs=p.block_crcs,
            )  # fmt: skip
    return cache


def _place(path: str, h5: Any, split: Split) -> SplitPlace:
    offset, count, dtype = h5.place(f"{split}/ids")
    total = h5.number(f"{split}_tokens")
    if dtype not in ("uint16", "uint32") or count != total or (count > 0 and offset < 0):
        raise FormatError(
            path, max(offset, 0), f"{split}/ids: {count} of {dtype} where {total} ids should lie"
        )
    width = int(np.dtype(dtype).itemsize)
    crcs = tuple(int(c) for c in h5.read(f"{split}/ids_crc32c"))
    if len(crcs) != -(-count * width // BLOCK_BYTES):
        raise FormatError(path, 0, f"{split}/ids_crc32c: {len(crcs)} checksums do not fit {count} ids")
    return SplitPlace(
        offset, count, width, crcs, h5.number(f"{split}_documents"), h5.number(f"{split}_text_bytes")
    )


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as e:
        raise FormatError(str(file), 0, f"cannot be read: {e.strerror}") from None


def _read_checked(file: Path, split: Split, name: str) -> npt.NDArray[Any]:
    from mudd_core import _core, _h5

    with _h5.File.open(str(file)) as h5:
        values: npt.NDArray[Any] = h5.read(f"{split}/{name}")
        wanted = h5.read(f"{split}/{name}_crc32c")
        offset = h5.place(f"{split}/{name}")[0]
    got = _core.crc32c_blocks(values)
    for i, (g, w) in enumerate(zip(got, wanted, strict=True)):
        if g != int(w):
            raise FormatError(str(file), offset + i * BLOCK_BYTES, f"{split}/{name}: block {i} is damaged; "
                              f"{way_out(file.parent)}")  # fmt: skip
    values.flags.writeable = False
    return values


def build_cache(
    root: Path, corpus: Corpus, tokenizer: str, vocab_size: int, identity: str, progress: Progress
) -> TokenCache:
    """Builds the cache of a corpus below `root`. The caller holds the lock of its fingerprint.

    SaveError if the disk is full or refuses; nothing half-made stays.
    """
    name = fingerprint_of(corpus.hash, identity)
    try:
        _build(root, name, corpus, tokenizer, vocab_size, identity, progress)
    except OSError as e:
        raise SaveError(
            f"[data.cache_dir] the token cache {root / name} cannot be written: {e.strerror or e}; "
            "free some space or choose another data.cache_dir"
        ) from None
    return open_cache(root / name)


def _build(
    root: Path, name: str, corpus: Corpus, tokenizer: str, vocab_size: int, identity: str, progress: Progress
) -> None:
    from mudd_core import _core

    _core.remove_dead_temporaries(str(root))
    folder = _core.AtomicFolder(str(root), name, str(os.getpid()))
    work = root / f"{name}.tmp-{os.getpid()}"
    data = _tokenizer_data(corpus, tokenizer, vocab_size, progress)
    if data is not None:
        _write_synced(work / "tokenizer.json", data)
    maker = ByteTokenizer() if data is None else JsonTokenizer(data, tokenizer)
    dtype = np.dtype(np.uint16 if maker.vocab_size <= 65536 else np.uint32)
    spools = {s: _spool(work / f"{s}.spool", corpus.documents(s), maker, dtype, s, progress) for s in SPLITS}
    facts: dict[str, str | int] = {
        "fingerprint": name,
        "corpus_hash": corpus.hash,
        "tokenizer": identity,
        "tokenizer_hash": hashlib.sha256(data or b"").hexdigest(),
        "vocab_size": maker.vocab_size,
        "eos_id": maker.eos_id,
    }
    _write_h5(work / "tokens.h5", corpus, spools, dtype, facts)
    for s in SPLITS:
        spools[s].file.unlink()
    summary = {"format": FORMAT, "corpus": corpus.name, "files_left_out": corpus.left_out, **facts}
    folder.commit("cache.json", json.dumps(summary, indent=1, ensure_ascii=True) + "\n")


def _tokenizer_data(corpus: Corpus, tokenizer: str, vocab_size: int, progress: Progress) -> bytes | None:
    if tokenizer == "bytes":
        return None
    if tokenizer != "bpe":
        return read_tokenizer_json(tokenizer)

    def texts() -> Iterator[bytes]:
        for i, document in enumerate(corpus.train):
            progress("training the tokenizer", i, len(corpus.train))
            yield document.read()
        progress("training the tokenizer", len(corpus.train), len(corpus.train))

    return train_bpe(texts(), len(corpus.train), vocab_size)


@dataclass(frozen=True)
class _Spool:
    """Ids of a split in a plain file: a contiguous dataset must know its length before its first byte."""

    file: Path
    tokens: int
    starts: npt.NDArray[np.uint64]


def _spool(
    file: Path,
    documents: tuple[Document, ...],
    tokenizer: Tokenizer,
    dtype: np.dtype[Any],
    split: Split,
    progress: Progress,
) -> _Spool:
    starts = np.zeros(len(documents), np.uint64)
    tokens = done = 0
    phase = f"encoding {'training' if split == 'train' else 'validation'} text"
    with file.open("wb") as out:
        for batch in _batches(documents):
            for ids in tokenizer.encode_documents([d.read() for d in batch]):
                if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < tokenizer.vocab_size:
                    raise UserError(
                        f"[data.tokenizer] expected ids in [0, {tokenizer.vocab_size}), "
                        f"got {ids.min()} to {ids.max()}"
                    )
                out.write(np.append(ids, tokenizer.eos_id).astype(dtype).tobytes())
                starts[done] = tokens
                tokens += ids.size + 1
                done += 1
            progress(phase, done, len(documents))
    return _Spool(file, tokens, starts)


def _batches(documents: tuple[Document, ...]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += document.size
        if size >= ENCODE_BYTES or len(batch) == 1024:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _write_h5(
    file: Path, corpus: Corpus, spools: dict[Split, _Spool], dtype: np.dtype[Any], facts: dict[str, str | int]
) -> None:
    """tokens.h5; adds the totals to `facts` and writes all of them last."""
    from mudd_core import _core, _h5

    content = hashlib.sha256()
    with _h5.File.create(str(file)) as h5:
        for s in SPLITS:
            spool = spools[s]
            h5.create_dataset(f"{s}/ids", dtype, spool.tokens)
            crcs: list[int] = []
            with spool.file.open("rb") as ids:
                while block := ids.read(BLOCK_BYTES):
                    h5.write(
                        f"{s}/ids", np.frombuffer(block, dtype), len(crcs) * (BLOCK_BYTES // dtype.itemsize)
                    )
                    crcs.append(_core.crc32c(block))
                    content.update(block)
            _write_array(h5, f"{s}/ids_crc32c", np.array(crcs, np.uint32))
            _write_array(h5, f"{s}/document_starts", spool.starts)
            starts_crcs = np.array(_core.crc32c_blocks(spool.starts), np.uint32)
            _write_array(h5, f"{s}/document_starts_crc32c", starts_crcs)
            facts[f"{s}_tokens"] = spool.tokens
            facts[f"{s}_documents"] = len(spool.starts)
            facts[f"{s}_text_bytes"] = corpus.size(s)
        facts["content_hash"] = content.hexdigest()
        for key, value in {**facts, "format": FORMAT}.items():
            if isinstance(value, int):
                h5.set_number(key, value)
            else:
                h5.set_text(key, value)
    with file.open("rb") as written:
        os.fsync(written.fileno())


def _write_array(h5: Any, name: str, values: npt.NDArray[Any]) -> None:
    h5.create_dataset(name, values.dtype, values.size)
    h5.write(name, values)


def _write_synced(file: Path, data: bytes) -> None:
    with file.open("xb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
