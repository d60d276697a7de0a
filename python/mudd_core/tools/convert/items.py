"""Items of `data convert`: payloads, documents or lists of ids.

Readers yield items with their split, and writers write them.

Each writer is closed and synced before its file is renamed to its final name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

import numpy as np

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.framing import framed
from mudd_core.base.packages import needed
from mudd_core.base.types import Int64
from mudd_core.data.formats import FORMATS, documents, rows
from mudd_core.data.formats.bounded import BoundedFile, opened
from mudd_core.data.formats.example import encoded
from mudd_core.data.formats.megatron import head_bytes, kind_for
from mudd_core.data.formats.tfrecord import offsets, payload_at
from mudd_core.data.sources.boundaries import cut
from mudd_core.data.tokenizers.tokenizer import Tokenizer

I_contra = TypeVar("I_contra", contravariant=True)
TARGETS = ("tfrecord", "arrayrecord", "megatron", "c4")


@dataclass(frozen=True)
class Reading:
    """The options of a conversion. source, target: the formats. length: ids per record. valid: the held-out fraction.

    dropped: counts of the items that the output lacks, by description.
    """

    source: str
    target: str
    column: str
    length: int
    valid: float
    tokenizer: Tokenizer | None = None
    dropped: Counter[str] = field(default_factory=Counter)


def is_held_out(text: bytes, fraction: float) -> bool:
    """Return whether to hold a document out, by its SHA-256, so that equal documents are in the same split."""
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") < fraction * 2**64


def payloads(path: Path, how: Reading) -> Iterator[tuple[bool, bytes]]:
    """Yield (held out, payload) for each record of a file."""
    if FORMATS[how.source].holds == "ids":
        return ((False, encoded({"input_ids": ids})) for ids in _windows(path, how))
    if (how.source, how.target) == ("tfrecord", "arrayrecord") and not how.valid:
        return ((False, payload) for payload in _payloads(path))
    return ((held, encoded({"text": text})) for held, text in texts(path, how))


def texts(path: Path, how: Reading) -> Iterator[tuple[bool, str]]:
    """Yield (held out, document) for each document of a file."""
    return ((is_held_out(text.encode(), how.valid), text) for text in _texts(path, how))


def token_ids(path: Path, how: Reading) -> Iterator[tuple[bool, Int64]]:
    """Yield (held out, ids with EOS) for each document of a file."""
    tokenizer = how.tokenizer
    if tokenizer is None:
        raise UserError("[data convert] --tokenizer: expected the tokenizer of the ids, got none")
    for held, text in texts(path, how):
        yield held, np.append(tokenizer.encode_documents([text.encode()])[0], tokenizer.eos_id)


def _texts(path: Path, how: Reading) -> Iterator[str]:
    """Yield documents; docs/data.md describes how a plain text file is split."""
    if how.source != "text":
        yield from documents(path, how.column, how.source)
        return
    with opened(path) as file:
        for start, text in cut(file, path.stat().st_size):
            try:
                yield text.decode("utf-8")
            except UnicodeDecodeError:
                raise FormatError(str(path), start, "expected UTF-8 text, got other bytes") from None


def _payloads(path: Path) -> Iterator[bytes]:
    with BoundedFile(path) as file:
        for offset in offsets(file):
            yield payload_at(file, offset)


def other_columns(path: Path, how: Reading) -> list[str]:
    """Return the columns of the first record that a conversion of documents drops."""
    one = FORMATS[how.source]
    if one.holds != "records" or ((how.source, how.target) == ("tfrecord", "arrayrecord") and not how.valid):
        return []
    first = next(islice(one.objects(path) if one.objects else one.records(path, None), 1), {})
    return [name for name in first if name != how.column]


def _windows(path: Path, how: Reading) -> Iterator[Int64]:
    """Yield sequences of how.length ids as they are. Join and split others; neighbours then share one id."""
    length = how.length
    rest = np.empty(0, np.int64)
    joined, shared = False, 0
    for ids in rows(path):
        if ids.size == length and not joined:
            yield ids
            continue
        joined = True
        rest = np.concatenate([rest, ids])
        while rest.size >= length:
            yield rest[:length]
            rest, shared = rest[length - 1 :], 1
    if rest.size > shared:
        how.dropped[f"ids after the last whole record of {length:,} ids"] += rest.size - shared


class Writer(Protocol[I_contra]):
    """A writer of items in one format; `close` completes the files."""

    def write(self, item: I_contra) -> None: ...
    def close(self) -> None: ...


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()


class TfrecordWriter:
    """Writes payloads as framed records."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, item: bytes) -> None:
        self._file.write(framed(item))

    def close(self) -> None:
        _sync(self._file)


class ArrayRecordWriter:
    """Writes payloads, one per chunk, as the original programs' loader expects."""

    def __init__(self, path: Path) -> None:
        module = needed(
            "array_record.python.array_record_module", "[data convert] --to", "to write ArrayRecord files"
        )
        self._path, self._writer = path, module.ArrayRecordWriter(str(path), "group_size:1")

    def write(self, item: bytes) -> None:
        self._writer.write(item)

    def close(self) -> None:
        self._writer.close()
        with self._path.open("rb") as file:
            os.fsync(file.fileno())


class LinesWriter:
    """Writes documents as JSON objects, one per line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, item: str) -> None:
        self._file.write(json.dumps({"text": item}, ensure_ascii=False).encode() + b"\n")

    def close(self) -> None:
        _sync(self._file)


class IndexedWriter:
    """Writes lists of ids to NAME.bin; `close` writes NAME.idx. path: NAME.bin."""

    def __init__(self, path: Path, vocab_size: int) -> None:
        self._code, self._kind = kind_for(vocab_size)
        self._index = path.with_suffix(".idx")
        self._sizes: list[int] = []
        self._file = path.open("wb")

    def write(self, item: Int64) -> None:
        ids = np.asarray(item, self._kind)
        self._sizes.append(ids.size)
        self._file.write(ids.tobytes())

    def close(self) -> None:
        _sync(self._file)
        sizes = np.array(self._sizes, np.int64)
        index = self._index.open("wb")
        index.write(head_bytes(self._code, sizes, np.arange(sizes.size + 1)))
        _sync(index)
