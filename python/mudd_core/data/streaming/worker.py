"""A process that reads and tokenizes documents for a run: `python -m mudd_core.data.streaming.worker`.

Requests come through its input, and the answers leave through its output in the same order. The process ends when the
run has ended. It ignores stop signals, which only the run handles. It reads a document by its
index: record formats have functions for this (Format.by_number); a text file is one document, or is split into
documents.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from mudd_core import _core
from mudd_core.base.errors import FormatError
from mudd_core.base.regular_files import open_regular
from mudd_core.base.types import Array, Int64
from mudd_core.data.documents.source import TextFiles
from mudd_core.data.formats import text
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.format import ByNumber, Reader, Value, text_of
from mudd_core.data.messages import Head, Message, answer_parent, fault_of, joined, receive, send
from mudd_core.data.sources.boundaries import cut_text
from mudd_core.data.streaming.recipe import Encoder


class _Reading:
    """A file that is read in order, and the index of its next document."""

    def __init__(self, file: int, documents: Iterator[bytes]) -> None:
        self.file, self.documents, self.number = file, documents, 0

    def next_texts(self, count: int) -> list[bytes]:
        """Return the next documents, or fewer at the end of the file."""
        found: list[bytes] = []
        while len(found) < count and (text := next(self.documents, None)) is not None:
            found.append(text)
            self.number += 1
        return found

    def skip(self, count: int) -> int:
        """Skip documents; return how many there were."""
        begin = self.number
        while self.number - begin < count and next(self.documents, None) is not None:
            self.number += 1
        return self.number - begin


class Worker:
    """The handler of messages, which are answered one after another."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._reading: _Reading | None = None
        self._readers: dict[int, Reader] = {}

    def do(self, head: Head, arrays: list[Array]) -> Message:
        """Return the answer to a message; raise OSError if a file is lost."""
        if head["do"] == "read":
            return self._read(head["file"], head["first"], head["count"], head["ids"])
        if head["do"] == "pick":
            return self._pick(*arrays)
        return {}, [self._places(head["file"])]

    def _read(self, file: int, first: int, count: int, wanted: bool) -> Message:
        """Return lengths, ids and indices of the selected documents among `count` documents from `first`."""
        reading = self._at(file, first)
        if not wanted:
            found = reading.skip(count)
            return {"read": found, "bytes": 0, "ended": found < count}, []
        bad = self._encoder.texts.bad
        before = bad.count
        texts = reading.next_texts(count)
        dropped = bad.count - before
        kept = [number for number, text in enumerate(texts) if self._encoder.keeps(text)]
        rows = self._encoder.ids([texts[number] for number in kept])
        head: Head = {"read": len(texts), "bytes": sum(map(len, texts)), "ended": len(texts) < count}
        if dropped:
            head |= {"dropped": dropped, "first_dropped": bad.first}
        return head, [*joined(rows, np.int32), np.array(kept, np.int64) + first]

    def _at(self, file: int, first: int) -> _Reading:
        reading = self._reading
        if reading is None or reading.file != file or reading.number > first:
            _require(self._encoder.texts.files[file])
            reading = self._reading = _Reading(file, self._encoder.documents(file))
        reading.skip(first - reading.number)
        return reading

    def _pick(self, files: Array, numbers: Array, places: Array) -> Message:
        """Return documents by their positions in files."""
        texts: list[bytes] = [b""] * len(files)
        encoder = self._encoder
        wanted = "text" if encoder.texts.named == "text" else encoder.texts.column
        for file in sorted({int(file) for file in files}):
            at = np.flatnonzero(files == file)
            path = encoder.texts.files[file]
            if file not in self._readers:
                _require(path)
                self._readers = {
                    file: reader_of(encoder.texts, path),
                    **dict(list(self._readers.items())[:15]),
                }
            for slot, value in zip(at, self._readers[file].read(places[at], numbers[at]), strict=True):
                texts[slot] = text_of(value, path, int(numbers[slot]), wanted).encode()
        return {}, joined(encoder.ids(texts), np.int32)

    def _places(self, file: int) -> Array:
        """Return the positions of the selected documents in a file."""
        path = self._encoder.texts.files[file]
        _require(path)
        places = places_of(self._encoder.texts, path)
        if self._encoder.kept == "all":
            return places
        mask = np.fromiter(map(self._encoder.keeps, self._encoder.documents(file)), bool)
        if mask.size != len(places):
            raise FormatError(
                str(path), 0, f"expected {len(places)} documents, got {mask.size}: the file changed"
            )
        kept: Array = places[mask]
        return kept


def _require(path: Path) -> None:
    """Raise OSError if a file is lost. A run may wait for the file."""
    os.close(open_regular(path))


def serve(source: BinaryIO, out: BinaryIO) -> None:
    """Answer requests until the other side closes the pipe."""
    told = receive(source)
    if told is None:
        return
    worker: Worker | None = None
    while (job := receive(source)) is not None:
        head, arrays = job
        try:
            worker = worker or Worker(Encoder.of_message(told))
            answer, found = worker.do(head, arrays)
        except Exception as error:
            worker, answer, found = None, fault_of(error), []
        send(out, {**answer, "ticket": head["ticket"]}, found)


def main() -> None:
    """Run the process."""
    answer_parent(serve, (*_core.stop_signals(), _core.save_signal()))


def places_of(texts: TextFiles, path: Path) -> Int64:
    """Return the positions [n, 2] of a file's records."""
    if texts.format.holds == "text":
        return _places_of_text(path) if texts.cuts else np.zeros((1, 2), np.int64)
    return _by_number(texts).places(path)


def reader_of(texts: TextFiles, path: Path) -> Reader:
    """Open a file for reading documents by index."""
    if texts.format.holds == "text":
        return _Pieces(path) if texts.cuts else _Whole(path)
    return _by_number(texts).reader(path, texts.column)


def _by_number(texts: TextFiles) -> ByNumber:
    found = texts.format.by_number
    assert found is not None, f"streaming/data.py refuses {texts.named}"
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
    """A plain text file that is split into documents."""

    def __init__(self, path: Path) -> None:
        self._file = BoundedFile(path, reads_again=True)

    def read(self, places: Int64, numbers: Int64) -> list[Value | None]:
        return [self._file.read(int(at), int(size), "text") for at, size in places]


if __name__ == "__main__":
    main()
