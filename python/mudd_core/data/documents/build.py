"""Token caches of documents in files (cache.py says what is in one), built file by file.

A build works in `<fingerprint>.parts`: each part is the ids of a few files, complete when its summary is there. A
killed build goes on behind its last complete part, and gives the same bytes as an undisturbed one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TypedDict

import numpy as np

from mudd_core.base.errors import FormatError, StopRequestedError, UserError
from mudd_core.data.cache import FORMAT, SPLITS, TokenCache, fingerprint_of, open_cache
from mudd_core.data.cache_build import ENCODE_BYTES, Spool, unwritten, write_h5, write_synced
from mudd_core.data.cache_folder import locked
from mudd_core.data.corpus import Progress, Split, is_held_out
from mudd_core.data.documents.source import DocumentSource, Texts, framed
from mudd_core.data.source_notes import SourceNote, drop_notes, keep_notes, note_of, require_unchanged
from mudd_core.data.tokenize import ByteTokenizer, Ids, Tokenizer, train_bpe
from mudd_core.data.tokenizer_source import stored_file, stored_tokenizer


class Vocabulary(Protocol):
    """What decides the ids of a cache: a TokenizerSource, or the number of ids where documents are ids already."""

    @property
    def kind(self) -> str: ...
    @property
    def data(self) -> bytes: ...
    @property
    def file(self) -> str: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def identity(self) -> str: ...


@dataclass(frozen=True)
class IdsAlone:
    """A vocabulary without a tokenizer."""

    vocab_size: int
    kind: str = "ids"
    data: bytes = b""
    file: str = ""

    @property
    def identity(self) -> str:
        return f"ids:{self.vocab_size}"


class _NoTokenizer(ByteTokenizer):
    def __init__(self, vocab_size: int) -> None:
        self.vocab_size, self.eos_id = vocab_size, 0


def cache_name(source: DocumentSource, tokenizer: Vocabulary) -> str:
    """Name of the cache of documents under a tokenizer."""
    return fingerprint_of(source.digest(), tokenizer.identity)


def documents_cache(
    root: Path, source: DocumentSource, tokenizer: Vocabulary, progress: Progress
) -> TokenCache:
    """The cache of documents, built under its lock unless it is there. SaveError if the disk refuses."""
    name = cache_name(source, tokenizer)
    if (root / name).is_dir():
        require_unchanged(root, name, source.whole_files())
        return open_cache(root / name)
    with locked(root, f"{name}.lock", progress):
        if not (root / name).is_dir():
            try:
                _Build(root, name, source, tokenizer, progress).run()
            except OSError as e:
                raise unwritten(root / name, e) from None
            except (FormatError, UserError):  # what mends it changes the name: nobody would go on here
                shutil.rmtree(root / f"{name}.parts", ignore_errors=True)
                drop_notes(root, name)
                raise
    return open_cache(root / name)


class _Source(TypedDict):
    """A SourceNote as JSON has it."""

    size: int
    mtime_ns: int
    ctime_ns: int
    sha256: str


class _Summary(TypedDict):
    """What a complete part has: bytes of each split, training documents of each file, its files as they were."""

    bytes: dict[Split, int]
    train_files: list[int]
    sources: list[_Source]


class _Build:
    def __init__(
        self, root: Path, name: str, source: DocumentSource, tokenizer: Vocabulary, progress: Progress
    ) -> None:
        self._root, self._name, self._source, self._found = root, name, source, tokenizer
        self._progress = progress
        self._work = root / f"{name}.parts"
        self._tokenizer_file = stored_file(tokenizer.identity)

    def run(self) -> None:
        self._work.mkdir(exist_ok=True)
        data = self._tokenizer_data()
        found = self._found
        maker = (
            _NoTokenizer(found.vocab_size)
            if found.kind == "ids"
            else stored_tokenizer(found.identity, data, found.file)
        )
        dtype = np.dtype(np.uint16 if maker.vocab_size <= 65536 else np.uint32)
        groups = [group for t in (self._source.train, self._source.valid) for group in t.groups()]
        for number, group in enumerate(groups):
            self._progress("tokenizing", number, len(groups))
            if not self._summary(number).exists():
                self._part(number, group, maker, dtype)
        self._progress("tokenizing", len(groups), len(groups))
        self._commit(len(groups), data, maker, dtype)
        shutil.rmtree(self._work, ignore_errors=True)

    def _tokenizer_data(self) -> bytes:
        if self._found.kind != "bpe":
            return self._found.data
        file = self._work / "tokenizer.json"
        if not file.exists():
            texts = (text for _, text in self._source.train.texts())
            data = train_bpe(texts, 0, self._found.vocab_size)
            _write_anew(self._work / "tokenizer.json.new", data)
            os.replace(self._work / "tokenizer.json.new", file)
        return file.read_bytes()

    def _summary(self, number: int) -> Path:
        return self._work / f"{number:05}.json"

    def _read(self, number: int) -> _Summary:
        found: _Summary = json.loads(self._summary(number).read_text())
        return found

    def _ids(self, number: int, split: Split) -> Path:
        return self._work / f"{number:05}.{split}.ids"

    def _lengths(self, number: int, split: Split) -> Path:
        return self._work / f"{number:05}.{split}.lengths"

    def _part(self, number: int, group: Texts, maker: Tokenizer, dtype: np.dtype[np.generic]) -> None:
        """Tokenizes a group of files; its summary, written last, has the length and size of each document."""
        lengths: dict[Split, list[int]] = {"train": [], "valid": []}
        sizes = dict.fromkeys(SPLITS, 0)
        files = [0] * len(group.files)  # training documents of each
        notes = [note_of(file) for file in group.whole_files()]
        outs = {s: self._ids(number, s).open("wb") for s in SPLITS}
        try:
            for batch in _batches(group.texts()):
                _end_on_request(sum(map(len, lengths.values())))
                rows = framed(maker, self._source.frame, [text for _, text in batch])
                for (file, text), ids in zip(batch, rows, strict=True):
                    _check(ids, maker)
                    held = self._source.hold_out and is_held_out(hashlib.sha256(text).digest())
                    split: Split = "valid" if held else group.split
                    outs[split].write(ids.astype(dtype).tobytes())
                    lengths[split].append(int(ids.size))
                    sizes[split] += len(text)
                    files[file] += split == "train"
        finally:
            for out in outs.values():
                out.flush()
                os.fsync(out.fileno())
                out.close()
        for split in SPLITS:
            _write_anew(self._lengths(number, split), np.array(lengths[split], np.uint32).tobytes())
        summary = json.dumps({"bytes": sizes, "train_files": files, "sources": list(map(asdict, notes))})
        new = self._summary(number).with_suffix(".new")
        _write_anew(new, summary.encode())
        os.replace(new, self._summary(number))

    def _spools(self, parts: int) -> dict[Split, Spool]:
        summaries = [self._read(number) for number in range(parts)]
        spools: dict[Split, Spool] = {}
        for split in SPLITS:
            parts_of = [np.fromfile(self._lengths(number, split), np.uint32) for number in range(parts)]
            lengths = np.concatenate(parts_of).astype(np.uint64)
            ends = np.cumsum(lengths, dtype=np.uint64)
            files = tuple(self._ids(number, split) for number in range(parts))
            size = sum(one["bytes"][split] for one in summaries)
            spools[split] = Spool(files, int(ends[-1]) if ends.size else 0, ends - lengths, size)
        return spools

    def _commit(self, parts: int, data: bytes, maker: Tokenizer, dtype: np.dtype[np.generic]) -> None:
        from mudd_core import _core

        spools = self._spools(parts)
        if not spools["train"].starts.size:
            raise UserError("[data.path] expected documents for each split, got none")
        facts: dict[str, str | int] = {
            "fingerprint": self._name,
            "corpus_hash": self._source.digest(),
            "tokenizer": self._found.identity,
            "tokenizer_hash": hashlib.sha256(data).hexdigest(),
            "vocab_size": maker.vocab_size,
            "eos_id": maker.eos_id,
        }
        notes = [SourceNote(**note) for n in range(parts) for note in self._read(n).get("sources", [])]
        keep_notes(self._root, self._name, notes)
        require_unchanged(self._root, self._name, self._source.whole_files())  # while they were read
        _core.remove_dead_temporaries(str(self._root), self._name)
        folder = _core.AtomicFolder(str(self._root), self._name, str(os.getpid()))
        try:
            work = self._root / f"{self._name}.tmp-{os.getpid()}"
            if self._tokenizer_file is not None:
                write_synced(work / self._tokenizer_file, data)
            write_h5(work / "tokens.h5", spools, dtype, facts)
            files = [count for number in range(parts) for count in self._read(number)["train_files"]]
            summary = {"format": FORMAT, **facts, "train_files": files}
            folder.commit("cache.json", json.dumps(summary) + "\n")
        finally:
            del folder  # what is not committed goes now, not when the traceback does


def _write_anew(file: Path, data: bytes) -> None:
    file.unlink(missing_ok=True)  # of a killed build
    write_synced(file, data)


def _end_on_request(done: int) -> None:
    from mudd_core import _core

    if _core.stop_requested():
        raise StopRequestedError(
            f"[data] stop requested after {done:,} documents of a file; the next build goes on behind the files done"
        )


def _check(ids: Ids, maker: Tokenizer) -> None:
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < maker.vocab_size:
        raise UserError(
            f"[data.tokenizer] expected ids in [0, {maker.vocab_size}), got {ids.min()} to {ids.max()}"
        )


def _batches(texts: Iterator[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    batch: list[tuple[int, bytes]] = []
    size = 0
    for file, text in texts:
        batch.append((file, text))
        size += len(text)
        if size >= ENCODE_BYTES or len(batch) == 1024:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
