"""Building a token cache (cache.py says what is in it).

A build works in `<fingerprint>.tmp-<pid>`; one that was killed leaves only that, which the next build of the same
cache removes.
Builds of equal text give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import SaveError, UserError
from mudd_core.base.types import Array, JsonObject
from mudd_core.data.cache import BLOCK_BYTES, FORMAT, SPLITS, TokenCache, fingerprint_of, open_cache
from mudd_core.data.cache_seal import seal_of
from mudd_core.data.corpus import Corpus, Document, Progress, Split
from mudd_core.data.tokenize import Tokenizer, train_bpe
from mudd_core.data.tokenizer_source import TokenizerSource, stored_file, stored_tokenizer

if TYPE_CHECKING:
    from mudd_core import _h5

ENCODE_BYTES = 2**22  # text given to the tokenizer at once


def build_cache(root: Path, corpus: Corpus, source: TokenizerSource, progress: Progress) -> TokenCache:
    """Builds the cache of a corpus below `root`. The caller holds the lock of its fingerprint.

    SaveError if the disk is full or refuses; nothing half-made stays.
    """
    name = fingerprint_of(corpus.hash, source.identity)
    try:
        _build(root, name, corpus, source, progress)
    except OSError as e:
        raise unwritten(root / name, e) from None
    return open_cache(root / name)


def unwritten(cache: Path, error: OSError) -> SaveError:
    """The error of a cache that the disk did not take."""
    return SaveError(
        f"[data.cache_dir] the token cache {cache} cannot be written: {error.strerror or error}; "
        "free some space or choose another data.cache_dir"
    )


def _build(root: Path, name: str, corpus: Corpus, source: TokenizerSource, progress: Progress) -> None:
    from mudd_core import _core

    _core.remove_dead_temporaries(str(root), name)  # whose lock we hold
    folder = _core.AtomicFolder(str(root), name, str(os.getpid()))
    try:
        summary = _fill(root / f"{name}.tmp-{os.getpid()}", name, corpus, source, progress)
        text = json.dumps(summary, indent=1, ensure_ascii=True) + "\n"
        if (root / name).is_dir():  # of an earlier version
            folder.seal("cache.json", text)
            folder.replace()
        else:
            folder.commit("cache.json", text)
    finally:
        del folder  # what is not committed goes now, not when the traceback does


def _fill(work: Path, name: str, corpus: Corpus, source: TokenizerSource, progress: Progress) -> JsonObject:
    identity = source.identity
    data = _trained(corpus, source.vocab_size, progress) if source.kind == "bpe" else source.data
    if (file := stored_file(identity)) is not None:
        write_synced(work / file, data)
    maker = stored_tokenizer(identity, data, source.file)
    dtype = np.dtype(np.uint16 if maker.vocab_size <= 65536 else np.uint32)
    spools = {s: _spool(work / f"{s}.spool", corpus.documents(s), maker, dtype, s, progress) for s in SPLITS}
    facts: dict[str, str | int] = {
        "fingerprint": name,
        "corpus_hash": corpus.hash,
        "tokenizer": identity,
        "tokenizer_hash": hashlib.sha256(data).hexdigest(),
        "vocab_size": maker.vocab_size,
        "eos_id": maker.eos_id,
    }
    write_h5(work / "tokens.h5", spools, dtype, facts)
    for s in SPLITS:
        for spool_file in spools[s].files:
            spool_file.unlink()
    return {"format": FORMAT, "corpus": corpus.name, "files_left_out": corpus.left_out, **facts}


def _trained(corpus: Corpus, vocab_size: int, progress: Progress) -> bytes:
    def texts() -> Iterator[bytes]:
        for i, document in enumerate(corpus.train):
            progress("training the tokenizer", i, len(corpus.train))
            yield document.read()
        progress("training the tokenizer", len(corpus.train), len(corpus.train))

    return train_bpe(texts(), len(corpus.train), vocab_size)


@dataclass(frozen=True)
class Spool:
    """Ids of a split in plain files: a contiguous dataset must know its length before its first byte."""

    files: tuple[Path, ...]
    tokens: int
    starts: npt.NDArray[np.uint64]
    text_bytes: int


def _spool(
    file: Path,
    documents: tuple[Document, ...],
    tokenizer: Tokenizer,
    dtype: np.dtype[np.generic],
    split: Split,
    progress: Progress,
) -> Spool:
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
    return Spool((file,), tokens, starts, sum(d.size for d in documents))


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


def write_h5(
    file: Path, spools: dict[Split, Spool], dtype: np.dtype[np.generic], facts: dict[str, str | int]
) -> None:
    """tokens.h5; adds the totals to `facts` and writes all of them last."""
    from mudd_core import _core, _h5

    content = hashlib.sha256()
    with _h5.File.create(str(file)) as h5:
        for s in SPLITS:
            spool = spools[s]
            h5.create_dataset(f"{s}/ids", dtype, spool.tokens)
            crcs: list[int] = []
            for block in _blocks(spool.files):
                h5.write(f"{s}/ids", np.frombuffer(block, dtype), len(crcs) * (BLOCK_BYTES // dtype.itemsize))
                crcs.append(_core.crc32c(block))
                content.update(block)
            _write_array(h5, f"{s}/ids_crc32c", np.array(crcs, np.uint32))
            _write_array(h5, f"{s}/document_starts", spool.starts)
            starts_crcs = np.array(_core.crc32c_blocks(spool.starts), np.uint32)
            _write_array(h5, f"{s}/document_starts_crc32c", starts_crcs)
            facts[f"{s}_tokens"] = spool.tokens
            facts[f"{s}_documents"] = len(spool.starts)
            facts[f"{s}_text_bytes"] = spool.text_bytes
        facts["content_hash"] = content.hexdigest()
        for key, value in {**facts, "format": FORMAT}.items():
            if isinstance(value, int):
                h5.set_number(key, value)
            else:
                h5.set_text(key, value)
        h5.set_text("seal", seal_of(h5, str(file)))
    with file.open("rb") as written:
        os.fsync(written.fileno())


def _blocks(files: Iterable[Path]) -> Iterator[bytes]:
    """The bytes of files that follow one another, BLOCK_BYTES at a time."""
    block = b""
    for file in files:
        with file.open("rb") as opened:
            while part := opened.read(BLOCK_BYTES - len(block)):
                block += part
                if len(block) == BLOCK_BYTES:
                    yield block
                    block = b""
    if block:
        yield block


def _write_array(h5: _h5.File, name: str, values: Array) -> None:
    h5.create_dataset(name, values.dtype, values.size)
    h5.write(name, values)


def write_synced(file: Path, data: bytes) -> None:
    """A new file, on the disk when this returns."""
    with file.open("xb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
