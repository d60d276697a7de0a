"""Building a token cache (cache.py says what is in one), part by part.

A build works in `<fingerprint>.parts`: each part is the ids of a few files or documents, complete when its summary is
there. The next start continues a killed build after its complete parts, and ends with the bytes of an undisturbed one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

import numpy as np

from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.data.cache import SPLITS, TokenCache, fingerprint_of, open_cache
from mudd_core.data.cache_file import Spool, write_h5
from mudd_core.data.cache_folder import build_locked, is_current
from mudd_core.data.corpus import Progress, Split, is_held_out
from mudd_core.data.documents.source import DocumentSource, Texts, framed
from mudd_core.data.progress import end_on_request
from mudd_core.data.source_notes import SourceNote, drop_notes, keep_notes, note_of, require_unchanged
from mudd_core.data.tokenize import ByteTokenizer, Ids, Tokenizer, train_bpe
from mudd_core.data.tokenizer_source import TokenizerSource, stored_file, stored_tokenizer

ENCODE_BYTES = 2**22  # text given to the tokenizer at once
_PHASES = {"train": "encoding training text", "valid": "encoding validation text"}


class _NoTokenizer(ByteTokenizer):
    def __init__(self, vocab_size: int) -> None:
        self.vocab_size, self.eos_id = vocab_size, 0


def cache_name(source: DocumentSource, tokenizer: TokenizerSource) -> str:
    """Name of the cache of documents under a tokenizer."""
    return fingerprint_of(source.digest(), tokenizer.identity)


def documents_cache(
    root: Path, source: DocumentSource, tokenizer: TokenizerSource, progress: Progress
) -> TokenCache:
    """The cache of documents, built under its lock unless it is there. SaveError if the disk refuses."""
    name = cache_name(source, tokenizer)
    if is_current(root / name):
        require_unchanged(root, name, source.whole_files())
        return open_cache(root / name)
    return build_locked(root, name, lambda: _Build(root, name, source, tokenizer, progress).run(), progress)


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
        self, root: Path, name: str, source: DocumentSource, tokenizer: TokenizerSource, progress: Progress
    ) -> None:
        self._root, self._name, self._source, self._found = root, name, source, tokenizer
        self._progress = progress
        self._work = root / f"{name}.parts"
        self._parts = [group for texts in (source.train, source.valid) for group in texts.groups()]
        self._done: Counter[Split] = Counter()  # documents of complete parts

    def run(self) -> None:
        """Build the cache. An error leaves nothing; a stop and a kill leave the complete parts."""
        from mudd_core import _core

        try:
            _core.remove_dead_temporaries(str(self._root), self._name)  # the lock of this name is held
            self._work.mkdir(exist_ok=True)
            data = self._tokenizer_data()
            maker = self._tokenizer(data)
            dtype = np.dtype(np.uint16 if maker.vocab_size <= 65536 else np.uint32)
            self._encode(maker, dtype)
            self._commit(data, maker, dtype)
        except OSError as e:
            self._drop_parts()
            raise SaveError(
                f"[data.cache_dir] the token cache {self._root / self._name} cannot be written: {e.strerror or e}; "
                "free some space or choose another data.cache_dir"
            ) from None
        except (FormatError, UserError):  # what mends it changes the name: no build would continue this one
            self._drop_parts()
            drop_notes(self._root, self._name)
            raise

    def _drop_parts(self) -> None:
        """Remove all parts, their summaries first: a kill in here leaves no summary without its ids."""
        for summary in self._work.glob("*.json"):
            summary.unlink(missing_ok=True)
        shutil.rmtree(self._work, ignore_errors=True)

    def _tokenizer_data(self) -> bytes:
        if self._found.kind != "bpe":
            return self._found.data
        file = self._work / "tokenizer.json"
        if not file.exists():
            _replace(file, train_bpe(self._training_texts(), 0, self._found.vocab_size))
        return file.read_bytes()

    def _training_texts(self) -> Iterator[bytes]:
        phase, total = "training the tokenizer", self._source.form.documents.get("train", 0)
        for number, (_, text) in enumerate(self._source.train.texts()):
            self._report(phase, number, total)
            yield text
        self._report(phase, total, total)

    def _tokenizer(self, data: bytes) -> Tokenizer:
        found = self._found
        if found.kind == "ids":
            return _NoTokenizer(found.vocab_size)
        return stored_tokenizer(found.identity, data, found.file)

    def _report(self, phase: str, done: int, total: int) -> None:
        """Report progress where the total is known; StopRequestedError if a stop was requested."""
        end_on_request(phase)
        if total:
            self._progress(phase, done, total)

    def _encode(self, maker: Tokenizer, dtype: np.dtype[np.generic]) -> None:
        """Tokenize the parts that are not complete."""
        self._report_encoding("train", 0)
        for number, part in enumerate(self._parts):
            if not self._summary(number).exists():
                self._encode_part(number, part, maker, dtype)
            for split in SPLITS:
                self._done[split] += self._lengths(number, split).stat().st_size // 4
            self._report_encoding(part.split, number + 1)

    def _report_encoding(self, split: Split, parts: int, documents: int = 0) -> None:
        """Report documents where their number is known, else complete parts. documents: of the part under way."""
        total = self._source.form.documents.get(split)
        if total is not None:
            self._report(_PHASES[split], self._done[split] + documents, total)
        elif documents:
            end_on_request("tokenizing")
        else:
            self._report("tokenizing", parts, len(self._parts))

    def _summary(self, number: int) -> Path:
        return self._work / f"{number:05}.json"

    def _read(self, number: int) -> _Summary:
        found: _Summary = json.loads(self._summary(number).read_text())
        return found

    def _ids(self, number: int, split: Split) -> Path:
        return self._work / f"{number:05}.{split}.ids"

    def _lengths(self, number: int, split: Split) -> Path:
        return self._work / f"{number:05}.{split}.lengths"

    def _encode_part(self, number: int, part: Texts, maker: Tokenizer, dtype: np.dtype[np.generic]) -> None:
        """Tokenize a part; its summary, written last, has the bytes of each split and documents of each file."""
        lengths: dict[Split, list[int]] = {"train": [], "valid": []}
        sizes = dict.fromkeys(SPLITS, 0)
        files: Counter[int] = Counter()  # training documents of each
        notes = [note_of(file) for file in part.whole_files()]
        outs = {s: self._ids(number, s).open("wb") for s in SPLITS}
        try:
            for batch in _batches(part.texts()):
                rows = framed(maker, self._source.frame, [text for _, text in batch])
                for (file, text), ids in zip(batch, rows, strict=True):
                    _check(ids, maker)
                    held = self._source.hold_out and is_held_out(hashlib.sha256(text).digest())
                    split: Split = "valid" if held else part.split
                    outs[split].write(ids.astype(dtype).tobytes())
                    lengths[split].append(int(ids.size))
                    sizes[split] += len(text)
                    files[file] += split == "train"
                self._report_encoding(part.split, number, sum(map(len, lengths.values())))
        finally:
            for out in outs.values():
                out.flush()
                os.fsync(out.fileno())
                out.close()
        for split in SPLITS:
            _write_anew(self._lengths(number, split), np.array(lengths[split], np.uint32).tobytes())
        counts = [files[file] for file in range(len(part.files))]
        summary = {"bytes": sizes, "train_files": counts, "sources": list(map(asdict, notes))}
        _replace(self._summary(number), json.dumps(summary).encode())

    def _spools(self, summaries: list[_Summary]) -> dict[Split, Spool]:
        spools: dict[Split, Spool] = {}
        for split in SPLITS:
            parts_of = [
                np.fromfile(self._lengths(number, split), np.uint32) for number in range(len(summaries))
            ]
            lengths = np.concatenate(parts_of).astype(np.uint64)
            ends = np.cumsum(lengths, dtype=np.uint64)
            files = tuple(self._ids(number, split) for number in range(len(summaries)))
            size = sum(one["bytes"][split] for one in summaries)
            spools[split] = Spool(files, int(ends[-1]) if ends.size else 0, ends - lengths, size)
        return spools

    def _commit(self, data: bytes, maker: Tokenizer, dtype: np.dtype[np.generic]) -> None:
        from mudd_core import _core

        root, name, form = self._root, self._name, self._source.form
        summaries = [self._read(number) for number in range(len(self._parts))]
        spools = self._spools(summaries)
        if not spools["train"].starts.size:
            raise UserError("[data.path] expected documents for each split, got none")
        facts: dict[str, str | int] = {
            "fingerprint": name,
            "corpus_hash": self._source.digest(),
            "tokenizer": self._found.identity,
            "tokenizer_hash": hashlib.sha256(data).hexdigest(),
            "vocab_size": maker.vocab_size,
            "eos_id": maker.eos_id,
        }
        if not form.content:  # then the name covers the edges of files alone
            keep_notes(
                root, name, [SourceNote(**note) for one in summaries for note in one.get("sources", [])]
            )
            require_unchanged(root, name, self._source.whole_files())  # while they were read
        folder = _core.AtomicFolder(str(root), name, str(os.getpid()))
        try:
            work = Path(folder.temporary)
            if (tokenizer_file := stored_file(self._found.identity)) is not None:
                _write_anew(work / tokenizer_file, data)
            write_h5(work / "tokens.h5", spools, dtype, facts)
            manifest = form.manifest(facts, [count for one in summaries for count in one["train_files"]])
            self._drop_parts()  # before the name is there: nobody would remove them after it
            if (root / name).is_dir():  # of an earlier version
                folder.seal("cache.json", manifest)
                folder.replace()
            else:
                folder.commit("cache.json", manifest)
        finally:
            del folder  # what is not committed goes now, not when the traceback does


def _replace(file: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all."""
    new = file.with_suffix(".new")
    _write_anew(new, data)
    os.replace(new, file)


def _write_anew(file: Path, data: bytes) -> None:
    """Write a file, on the disk when this returns; one of a killed build is removed first."""
    file.unlink(missing_ok=True)
    with file.open("xb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


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
