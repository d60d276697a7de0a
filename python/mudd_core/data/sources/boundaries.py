"""The boundaries of documents in plain text: the rules of data.document, applied to one file.

piece: documents whose concatenation is the file, byte for byte. With piece = clamp(size / 256, 512, 65536) bytes, a
document ends at the first empty line after `piece` bytes, else at the first line end after 2 * piece, else at a
character border after 4 * piece. line: every line that is not empty, without its line end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, get_args

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import open_binary
from mudd_core.config.data import DocumentRule
from mudd_core.data.formats.text import fault_in, not_text

TAIL = 10  # a single file with data.document=file is validated on its last 1/TAIL


def rule_named(name: str) -> DocumentRule:
    """Return the rule of this name; the config has checked it."""
    return next(rule for rule in get_args(DocumentRule) if rule == name)


def cut(stream: BinaryIO, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield (start, bytes) of the documents in one file of `size` bytes; see `piece` above."""
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


def lines_of(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield (start, bytes) of the lines in a file, without line ends; lines of blanks are left out."""
    start = 0
    for line in stream:
        text = line.rstrip(b"\r\n")
        if text.strip():
            yield start, text
        start += len(line)


def cut_text(path: Path, rule: DocumentRule = "piece") -> Iterator[tuple[int, bytes]]:
    """Yield (start, bytes) of the documents in a file by `rule`, piece or line.

    Raise UserError if it is not UTF-8 text.
    """
    with open_binary(path) as file:
        size = file.seek(0, 2)
        file.seek(0)
        for start, text in lines_of(file) if rule == "line" else cut(file, size):
            if (fault := fault_in(text)) is not None:
                raise not_text(path, start + fault)
            yield start, text


def tail_start(text: bytes) -> int:
    """Return the offset of the last 1/TAIL of a text, moved to the next line start, else to a character border."""
    at = len(text) - len(text) // TAIL
    line = text.find(b"\n", at)
    if 0 <= line < len(text) - 1:
        return line + 1
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at


def require_text(path: Path, longest: int) -> None:
    """Raise UserError if the first `longest` bytes of a file are not UTF-8 text."""
    try:
        for start, _ in cut_text(path):
            if start > longest:
                return
    except OSError as error:
        raise UserError(f"[data.path] cannot read {str(path)!r}: {error.strerror}") from error
