"""Turn files into documents: split the files, select the held-out documents, and compute the hash of all documents.

A document is a whole file if the corpus is the standard library or a folder. A corpus of one file (or a folder with one
text file) is split into documents whose concatenation is the file, byte for byte. With piece = clamp(size / 256, 512,
65536) bytes, a document ends at the first empty line after `piece` bytes, else at the first line end after 2 * piece,
else at a character border after 4 * piece.

The validation split has the documents whose SHA-256, read as one integer, is 7 modulo 20. If none of two or more
documents qualifies, the one with the smallest SHA-256 is held out, so that every corpus can be validated.

Corpus hash: SHA-256 over (size as 8 little-endian bytes, bytes) of each document in order. Names affect only the order,
so the same text under another path is the same corpus.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import open_binary, read_bytes
from mudd_core.data.formats.text import fault_in, not_text
from mudd_core.data.sources.listing import Listing, list_files

Split = Literal["train", "valid"]
Progress = Callable[[str, int, int], None]

HELD_OUT_MODULUS = 20
HELD_OUT_REMAINDER = 7


@dataclass(frozen=True)
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


def cut(stream: BinaryIO, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield (start, bytes) of the documents in one file of `size` bytes; the module's docstring explains the rule."""
    piece = min(max(size // 256, 512), 65536)
    start = 0
    text = b""
    while start < size:
        if len(text) < 4 * piece + 4:  # a character has at most four bytes
            text += stream.read(8 * piece)
        if not text:
            raise UserError(f"[data.path] file ended at byte {start} of {size}: it changed while it was read")
        end = _end_of_document(text, piece)
        yield start, text[:end]
        start += end
        text = text[end:]


def _end_of_document(text: bytes, piece: int) -> int:
    if len(text) <= piece:
        return len(text)
    at = text.find(b"\n\n", piece, 2 * piece)
    if at >= 0:
        return at + 2
    at = text.find(b"\n", 2 * piece, 4 * piece)
    if at >= 0:
        return at + 1
    end = min(4 * piece, len(text))
    while end < len(text) and text[end] & 0xC0 == 0x80:  # never split inside a UTF-8 character
        end += 1
    return end


def cut_text(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (start, bytes) of the documents in a file, as `cut` does; raise UserError if it is not UTF-8 text."""
    with open_binary(path) as file:
        size = file.seek(0, 2)
        file.seek(0)
        for start, text in cut(file, size):
            if (fault := fault_in(text)) is not None:
                raise not_text(path, start + fault)
            yield start, text


def require_text(path: Path, longest: int) -> None:
    """Raise UserError if the first `longest` bytes of a file are not UTF-8 text."""
    try:
        for start, _ in cut_text(path):
            if start > longest:
                return
    except OSError as error:
        raise UserError(f"[data.path] cannot read {str(path)!r}: {error.strerror}") from error


def scan(path: str, progress: Progress | None = None) -> Corpus:
    """Read all files that `path` names (see `list_files`) and return their documents.

    Every byte is read and hashed. Raise UserError for a missing path or an empty corpus, and if `path` is one file that
    is not UTF-8 text; in folders such files are skipped and counted.
    """
    return scan_listing(list_files(path), progress)


def scan_listing(listing: Listing, progress: Progress | None = None) -> Corpus:
    """Read the files of a listing and return their documents, as `scan` does."""
    if listing.kind == "file":
        return _scan_one(
            Path(listing.root, listing.files[0].name.decode("utf-8", "surrogateescape")), 0, progress
        )
    documents: list[Document] = []
    corpus_hash = hashlib.sha256()
    left_out = 0
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
        corpus_hash.update(len(data).to_bytes(8, "little"))
        corpus_hash.update(data)
        documents.append(Document(name, 0, len(data), hashlib.sha256(data).digest()))
        if progress is not None:
            progress("reading", i + 1, len(listing.files))
    if listing.kind == "folder" and len(documents) == 1:
        return _scan_one(Path(documents[0].path.decode("utf-8", "surrogateescape")), left_out, progress)
    return _split(str(listing.root), corpus_hash.hexdigest(), documents, left_out)


def _scan_one(path: Path, left_out: int, progress: Progress | None) -> Corpus:
    """Return the documents of one file. It is read in pieces, so that it may be larger than the memory."""
    documents: list[Document] = []
    corpus_hash = hashlib.sha256()
    name = str(path).encode("utf-8", "surrogateescape")
    try:
        size = path.stat().st_size
        for start, text in cut_text(path):
            corpus_hash.update(len(text).to_bytes(8, "little"))
            corpus_hash.update(text)
            documents.append(Document(name, start, len(text), hashlib.sha256(text).digest()))
            if progress is not None:
                progress("reading", start + len(text), size)
    except OSError as e:
        raise UserError(f"[data.path] cannot read {str(path)!r}: {e.strerror}") from e
    return _split(str(path), corpus_hash.hexdigest(), documents, left_out)


def _split(name: str, corpus_hash: str, documents: list[Document], left_out: int) -> Corpus:
    if not any(d.size for d in documents):
        raise UserError(f"[data.path] empty corpus: no UTF-8 text in {name!r} ({left_out} files left out)")
    held = {d.digest for d in documents if is_held_out(d.digest)}
    if not held and len(documents) > 1:
        held = {min(d.digest for d in documents)}
    train = tuple(d for d in documents if d.digest not in held)
    valid = tuple(d for d in documents if d.digest in held)
    if not any(d.size for d in train) or not any(d.size for d in valid):
        raise UserError(
            f"[data.path] corpus too small: {len(documents)} documents in {name!r} give {len(train)} for "
            f"training and {len(valid)} for validation; both need text"
        )
    return Corpus(name, corpus_hash, train, valid, left_out)
