"""The documents of a pipeline: their files in order, the tokens around their ids, and the held-out split."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import open_binary, read_bytes
from mudd_core.base.types import Json, JsonObject
from mudd_core.config.data import DataConfig, DocumentRule
from mudd_core.data.cache.file import FORMAT
from mudd_core.data.cache.token_cache import TokenCache
from mudd_core.data.formats import FORMATS, Format, documents
from mudd_core.data.formats.format import FAIL, BadRecords, dropped_note
from mudd_core.data.messages import Frame as Frame
from mudd_core.data.sources.boundaries import cut_text, rule_named
from mudd_core.data.sources.corpus import Progress, Split
from mudd_core.data.sources.splits import Sources, sources_of
from mudd_core.data.tokenizers.tokenizer import Ids, Tokenizer

GROUP_BYTES = 32 << 20  # bytes of files that are tokenized as one part of a build
_EDGE_BYTES = 1 << 16
T = TypeVar("T")


class Texts(Protocol):
    """The documents of one split."""

    @property
    def split(self) -> Split: ...
    @property
    def files(self) -> tuple[Path, ...]: ...

    def texts(self) -> Iterator[tuple[int, bytes]]:
        """Yield (index of the file, document)."""

    def groups(self) -> Sequence[Texts]:
        """Return the documents in parts, which are tokenized one after another."""

    def identity(self) -> list[Json]:
        """Return all values that determine the documents, to compute a digest."""

    def whole_files(self) -> Sequence[Path]:
        """Return the files that are read to their end."""


@dataclass(frozen=True)
class TextFiles:
    """The files of a split.

    named: the format that the user chose. column: the column of the text. cuts: split a plain text file into documents.

    rule: of data.document. bad: the rule of data.bad_records, with its counts after the files were read.
    """

    split: Split
    files: tuple[Path, ...]
    named: str
    column: str
    cuts: bool = False
    bad: BadRecords = field(default=FAIL, compare=False)
    rule: DocumentRule = "auto"

    @property
    def format(self) -> Format:
        """The format of all files."""
        return FORMATS[self.named]

    @property
    def reads_groups(self) -> bool:
        """Return whether random access to a document reads its whole row group."""
        return self.format.by_number is not None and self.format.by_number.in_groups

    def texts(self) -> Iterator[tuple[int, bytes]]:
        """Yield (index of the file, document as UTF-8)."""
        for number, file in enumerate(self.files):
            if self.cuts:
                yield from ((number, text) for _, text in cut_text(file, self.rule))
            else:
                texts = documents(file, self.column, self.named, self.bad)
                yield from ((number, text.encode()) for text in texts)

    def identity(self) -> list[Json]:
        """Return name, size, first and last bytes of each file, and the format."""
        rule: list[Json] = ["drop"] if self.bad.drops else []
        rule += [] if self.rule == "auto" else [f"data.document={self.rule}"]
        return [list(map(file_digest, self.files)), self.named, self.column, *rule]

    def whole_files(self) -> Sequence[Path]:
        return self.files

    def groups(self) -> list[TextFiles]:
        """Return groups of consecutive files."""
        return [replace(self, files=files) for files in grouped(self.files, lambda file: file.stat().st_size)]


def dropped_of(cache: TokenCache) -> str:
    """Return the line about the bad records that the build of a cache dropped; empty if there are none."""
    try:
        facts = json.loads(read_bytes(cache.path / "cache.json"))
        return dropped_note(int(facts.get("dropped", 0)), str(facts.get("first_dropped", "")))
    except (OSError, ValueError, TypeError, AttributeError):  # the seal covers only the ids
        return ""


def grouped(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[tuple[T, ...]]:
    """Yield groups of consecutive items with at least GROUP_BYTES together; a larger item is a group alone."""
    group: list[T] = []
    size = 0
    for item in items:
        group.append(item)
        size += size_of(item)
        if size >= GROUP_BYTES:
            yield tuple(group)
            group, size = [], 0
    if group:
        yield tuple(group)


@dataclass(frozen=True)
class CacheForm:
    """The differences between token caches of documents in files and of plain text.

    content: SHA-256 of all documents; empty if the sizes and the first and last bytes of the files identify them.
    documents: the number in each split, if it is known before reading. header: the keys of cache.json before its
    totals.
    indent: the indentation of cache.json. lists_files: True if cache.json has the number of training documents per
    file.
    """

    content: str = ""
    documents: Mapping[Split, int] = field(default_factory=dict)
    header: JsonObject = field(default_factory=dict)
    indent: int | None = None
    lists_files: bool = True

    def manifest(self, facts: Mapping[str, str | int], train_files: list[int]) -> str:
        """Return the content of cache.json."""
        files: JsonObject = {"train_files": [*train_files]} if self.lists_files else {}
        return json.dumps({"format": FORMAT, **self.header, **facts, **files}, indent=self.indent) + "\n"


@dataclass(frozen=True)
class DocumentSource:
    """The documents of a token cache before they are tokenized.

    hold_out: select validation documents by their hash, because there are no validation files.
    """

    train: Texts
    valid: Texts
    frame: Frame
    hold_out: bool
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    form: CacheForm = CacheForm()

    def digest(self) -> str:
        """Return a digest of all values that determine the documents, their frame and their split."""
        if self.form.content:
            return self.form.content
        parts = [t.identity() for t in (self.train, self.valid)]
        return hashlib.sha256(json.dumps([parts, self.frame, self.hold_out]).encode()).hexdigest()

    def whole_files(self) -> list[Path]:
        """Return the files of both splits that are read to their end."""
        return [file for t in (self.train, self.valid) for file in t.whole_files()]

    def read(self, progress: Progress) -> DocumentSource:
        """Return this source, which needs no reading."""
        return self

    def accept(self, cache: TokenCache) -> str:
        """Return a note about bad records that the build dropped."""
        return dropped_of(cache)

    def bytes(self) -> int:
        """The total size of all files in bytes."""
        return sum(file.stat().st_size for t in (self.train, self.valid) for file in t.files)


def file_digest(path: Path) -> list[Json]:
    """Return name, size, and SHA-256 of the first and last bytes of a file."""
    size = path.stat().st_size
    with open_binary(path) as file:
        edges = hashlib.sha256(file.read(_EDGE_BYTES))
        file.seek(max(0, size - _EDGE_BYTES))
        edges.update(file.read(_EDGE_BYTES))
    return [os.fsencode(path.name).hex(), size, edges.hexdigest()]


def document_source(
    settings: DataConfig, frame: Frame, *, hold_out: bool, resumed: bool = False
) -> DocumentSource:
    """Return the documents of a config; raise UserError if a path does not exist or its files contain no text."""
    found: Sources = sources_of(settings, resumed=resumed)
    if found.format.holds == "ids":
        cure = "ids" if found.format.name == "tokens" else "megatron or features"
        raise UserError(
            f"[data.path] expected files of text for data.pipeline={settings.pipeline}, got {found.format.name} files "
            f"of ids; set data.pipeline={cure}"
        )

    bad = BadRecords(settings.bad_records == "drop")

    rule = rule_named(settings.document)
    if rule != "auto" and found.format.holds != "text":
        raise not_plain(found.format.name, rule)

    def is_cut(files: tuple[Path, ...]) -> bool:
        """Return True if each of the files is split into documents."""
        splits = len(files) == 1 if rule == "auto" else rule != "file"
        return splits and found.format.holds == "text"

    def texts_of(split: Split, files: tuple[Path, ...]) -> TextFiles:
        return TextFiles(split, files, found.format.name, settings.column, is_cut(files), bad, rule)

    train, valid = texts_of("train", found.train), texts_of("valid", found.valid)
    return DocumentSource(train, valid, frame, hold_out and not found.valid, found.warnings, found.notes)


def not_plain(form: str, rule: DocumentRule) -> UserError:
    """Return the error for data.document with files that are not plain text."""
    return UserError(
        f"[data.document] expected auto for files of {form}, whose records are the documents, got {rule}; leave "
        "data.document out"
    )


def framed(tokenizer: Tokenizer, frame: Frame, texts: Sequence[bytes]) -> Iterator[Ids]:
    """Yield the framed ids of each document; raise UserError for an id out of range."""
    for row in _framed(tokenizer, frame, texts):
        if row.size and not 0 <= int(row.min()) <= int(row.max()) < tokenizer.vocab_size:
            raise UserError(
                f"[data.tokenizer] expected ids in [0, {tokenizer.vocab_size}), got {row.min()} to {row.max()}"
            )
        yield row


def _framed(tokenizer: Tokenizer, frame: Frame, texts: Sequence[bytes]) -> Iterator[Ids]:
    if frame == "ids":
        return (np.frombuffer(text, np.int64) for text in texts)
    ids = tokenizer.encode_documents(texts, template=frame == "template")
    eos = tokenizer.eos_id
    if frame == "end":
        return (np.append(row, eos) for row in ids)
    if frame == "ends":
        bos = eos if tokenizer.bos_id is None else tokenizer.bos_id
        return (np.concatenate(([bos], row, [eos])) for row in ids)
    return iter(ids)


def tail_of(tokenizer: Tokenizer, frame: Frame) -> int:
    """Return the number of ids that the frame adds at the end of a document."""
    if frame != "template":
        return 1 if frame in ("end", "ends") else 0
    whole, plain = (tokenizer.encode_documents([b"a"], template=t)[0].tolist() for t in (True, False))
    for first in range(len(whole) - len(plain) + 1):
        if whole[first : first + len(plain)] == plain:
            return len(whole) - first - len(plain)
    return 0
