"""Turn files into documents: split the files, select the held-out documents, and compute the hash of all documents.

By default a document is a whole file if the corpus is the standard library or a folder. A corpus of one file, or a
folder with one text file, is split into pieces. data.document sets another rule (boundaries.py).

The validation split has the documents whose SHA-256, read as one integer, is 7 modulo 20. If none of two or more
documents qualifies, the one with the smallest SHA-256 is held out, so that every corpus can be validated. A single file
with data.document=file is two documents instead: the last tenth is held out.

Corpus hash: SHA-256 over (size as 8 little-endian bytes, bytes) of each document in order. Names affect only the order,
so the same text under another path is the same corpus. The name of a rule other than auto is hashed first.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import open_binary, read_bytes
from mudd_core.config.data import DocumentRule
from mudd_core.data.formats.text import fault_in, not_text
from mudd_core.data.sources.boundaries import cut_text, tail_start
from mudd_core.data.sources.listing import Listing, list_files

Split = Literal["train", "valid"]
Progress = Callable[[str, int, int], None]

HELD_OUT_MODULUS = 20
HELD_OUT_REMAINDER = 7


@dataclass(frozen=True, slots=True)
class Document:
    """A document: its location in a file, and the SHA-256 of its bytes."""

    path: bytes
    start: int
    size: int
    digest: bytes

    def read(self) -> bytes:
        """Return the bytes of the document; raise UserError if they differ from the hashed bytes."""
        try:
            with open_binary(self.path) as f:
                f.seek(self.start)
                text = f.read(self.size)
        except OSError as e:
            raise UserError(f"[data.path] {self._name()} cannot be read any more: {e.strerror}") from e
        if hashlib.sha256(text).digest() != self.digest:
            raise UserError(
                f"[data.path] {self._name()} changed while the corpus was read; run the command again"
            )
        return text

    def _name(self) -> str:
        return repr(self.path.decode("utf-8", "replace"))


@dataclass(frozen=True)
class Corpus:
    """Documents in order, divided into two splits. `left_out`: the number of files that are not UTF-8 text."""

    name: str
    hash: str
    train: tuple[Document, ...]
    valid: tuple[Document, ...]
    left_out: int

    def documents(self, split: Split) -> tuple[Document, ...]:
        return self.train if split == "train" else self.valid

    def size(self, split: Split) -> int:
        """Return the bytes of text in a split."""
        return sum(d.size for d in self.documents(split))


def is_held_out(digest: bytes) -> bool:
    """Return whether the document with this SHA-256 belongs to the validation split."""
    return int.from_bytes(digest, "big") % HELD_OUT_MODULUS == HELD_OUT_REMAINDER


def scan(path: str, progress: Progress | None = None, rule: DocumentRule = "auto") -> Corpus:
    """Read all files that `path` names (see `list_files`) and return their documents by `rule`.

    Every byte is read and hashed. Raise UserError for a missing path or an empty corpus, and if `path` is one file that
    is not UTF-8 text; in folders such files are skipped and counted.
    """
    return scan_listing(list_files(path), progress, rule)


def scan_listing(listing: Listing, progress: Progress | None = None, rule: DocumentRule = "auto") -> Corpus:
    """Read the files of a listing and return their documents, as `scan` does."""
    if listing.kind == "file":
        path = Path(listing.root, listing.files[0].name.decode("utf-8", "surrogateescape"))
        return _scan_one(path, 0, progress, rule)
    found = _Found(rule)
    left_out = 0
    files: list[bytes] = []
    for i, f in enumerate(listing.files):
        name = listing.path_of(f)
        try:
            data = read_bytes(name)
        except OSError as e:
            raise UserError(
                f"[data.path] cannot read {name.decode('utf-8', 'replace')!r}: {e.strerror}"
            ) from e
        if fault_in(data) is not None or (listing.kind == "folder" and b"\0" in data):
            left_out += 1
            continue
        files.append(name)
        if rule in ("auto", "file"):
            found.add(name, 0, data)
        else:
            _add_parts(found, Path(os.fsdecode(name)), rule)
        if progress is not None:
            progress("reading", i + 1, len(listing.files))
    if listing.kind == "folder" and len(files) == 1:
        return _scan_one(Path(os.fsdecode(files[0])), left_out, progress, rule)
    return _split(str(listing.root), found, left_out)


class _Found:
    """The documents of a corpus in order, and their hash so far."""

    def __init__(self, rule: DocumentRule) -> None:
        self.documents: list[Document] = []
        self._hash = hashlib.sha256(b"" if rule == "auto" else f"data.document={rule}\n".encode())

    def add(self, path: bytes, start: int, text: bytes) -> None:
        self._hash.update(len(text).to_bytes(8, "little"))
        self._hash.update(text)
        self.documents.append(Document(path, start, len(text), hashlib.sha256(text).digest()))

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()


def _add_parts(
    found: _Found, path: Path, rule: DocumentRule, report: Callable[[int], None] | None = None
) -> None:
    """Add the documents of a file that is split. It is read in parts, so it may be larger than the memory."""
    name = os.fsencode(path)
    for start, text in cut_text(path, rule):
        found.add(name, start, text)
        if report is not None:
            report(start + len(text))


def _scan_one(path: Path, left_out: int, progress: Progress | None, rule: DocumentRule) -> Corpus:
    """Return the documents of one file."""
    found = _Found(rule)
    try:
        if rule == "file":
            return _whole_file(path, found, left_out)
        size = path.stat().st_size
        report = None if progress is None else lambda done: progress("reading", done, size)
        _add_parts(found, path, rule, report)
    except OSError as e:
        raise UserError(f"[data.path] cannot read {str(path)!r}: {e.strerror}") from e
    return _split(str(path), found, left_out)


def _whole_file(path: Path, found: _Found, left_out: int) -> Corpus:
    """Return a file as one document for training and one for validation: its last tenth."""
    data = read_bytes(os.fsencode(path))
    if (fault := fault_in(data)) is not None:
        raise not_text(path, fault)
    at = tail_start(data)
    for start, text in ((0, data[:at]), (at, data[at:])):
        found.add(os.fsencode(path), start, text)
    return _checked(str(path), found, left_out, found.documents[1:])


def _split(name: str, found: _Found, left_out: int) -> Corpus:
    """Return the corpus whose validation documents are selected by their hashes."""
    held = {d.digest for d in found.documents if is_held_out(d.digest)}
    if not held and len(found.documents) > 1:
        held = {min(d.digest for d in found.documents)}
    return _checked(name, found, left_out, [d for d in found.documents if d.digest in held])


def _checked(name: str, found: _Found, left_out: int, held: Sequence[Document]) -> Corpus:
    """Return the corpus; raise UserError if a split has no text."""
    documents, apart = found.documents, {id(document) for document in held}
    if not any(d.size for d in documents):
        raise UserError(f"[data.path] empty corpus: no UTF-8 text in {name!r} ({left_out} files left out)")
    train = tuple(d for d in documents if id(d) not in apart)
    if not any(d.size for d in train) or not any(d.size for d in held):
        raise UserError(
            f"[data.path] corpus too small: {len(documents)} documents in {name!r} leave {len(train)} for "
            f"training and {len(held)} for validation; use more text"
        )
    return Corpus(name, found.hash, train, tuple(held), left_out)
