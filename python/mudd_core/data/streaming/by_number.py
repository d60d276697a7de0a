"""Documents by their number: where the records of a file are, and reading them there.

Formats of records do it themselves (Format.by_number); text is one document a file, or is cut into documents.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mudd_core.base.types import Int64
from mudd_core.data.documents.source import TextFiles
from mudd_core.data.formats import text
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.format import ByNumber, Reader, Value
from mudd_core.data.sources.corpus import cut_text


def places_of(texts: TextFiles, path: Path) -> Int64:
    """The places of a file's records, [n, 2]."""
    if texts.format.holds == "text":
        return _places_of_text(path) if texts.cuts else np.zeros((1, 2), np.int64)
    return _by_number(texts).places(path)


def reader_of(texts: TextFiles, path: Path) -> Reader:
    """An open file of texts."""
    if texts.format.holds == "text":
        return _Pieces(path) if texts.cuts else _Whole(path)
    return _by_number(texts).reader(path, texts.column)


def _by_number(texts: TextFiles) -> ByNumber:
    found = texts.format.by_number
    assert found is not None, f"streaming/choose.py refuses {texts.named}"
    return found


def _places_of_text(path: Path) -> Int64:
    found = [(start, len(data)) for start, data in cut_text(path)]
    return np.array(found, np.int64).reshape(-1, 2)


class _Whole:
    """A file that is one document."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, places: Int64, numbers: Int64) -> list[Value | None]:
        return [next(text.records(self._path, ("text",)))["text"] for _ in places]


class _Pieces:
    """A file of plain text that is cut into documents."""

    def __init__(self, path: Path) -> None:
        self._file = BoundedFile(path, reads_again=True)

    def read(self, places: Int64, numbers: Int64) -> list[Value | None]:
        return [self._file.read(int(at), int(size), "text") for at, size in places]
