"""A process that reads documents and tokenizes them for a run: `python -m mudd_core.data.streaming.worker`.

It is told what to do through its input and answers through its output, in order; it ends where the run is gone. A stop
is the run's own business, so its signals are passed over here.
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
from mudd_core.base.types import Array
from mudd_core.data.formats.format import Reader, text_of
from mudd_core.data.messages import Head, Message, answer_parent, fault_of, joined, receive, send
from mudd_core.data.streaming.by_number import places_of, reader_of
from mudd_core.data.streaming.recipe import Encoder


class _Reading:
    """A file that is read in order, and the number of its next document."""

    def __init__(self, file: int, documents: Iterator[bytes]) -> None:
        self.file, self.documents, self.number = file, documents, 0

    def next_texts(self, count: int) -> list[bytes]:
        """The next documents; fewer at the end of the file."""
        found: list[bytes] = []
        while len(found) < count and (text := next(self.documents, None)) is not None:
            found.append(text)
            self.number += 1
        return found

    def skip(self, count: int) -> int:
        """Pass over documents; how many there were."""
        begin = self.number
        while self.number - begin < count and next(self.documents, None) is not None:
            self.number += 1
        return self.number - begin


class Worker:
    """Does what it is told, one thing after the other."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._reading: _Reading | None = None
        self._readers: dict[int, Reader] = {}

    def do(self, head: Head, arrays: list[Array]) -> Message:
        """The answer to a message. OSError where a file is lost."""
        if head["do"] == "read":
            return self._read(head["file"], head["first"], head["count"], head["ids"])
        if head["do"] == "pick":
            return self._pick(*arrays)
        return {}, [self._places(head["file"])]

    def _read(self, file: int, first: int, count: int, wanted: bool) -> Message:
        """Documents first, first + 1 and so on of a file: lengths, ids, numbers of those that are kept."""
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
        """Documents by their places in files."""
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
        """Where the kept documents of a file are."""
        path = self._encoder.texts.files[file]
        _require(path)
        places = places_of(self._encoder.texts, path)
        if self._encoder.kept == "all":
            return places
        mask = np.fromiter(map(self._encoder.keeps, self._encoder.documents(file)), bool)
        if mask.size != len(places):
            raise FormatError(str(path), 0, f"expected {len(places)} documents, got {mask.size}: it changed")
        kept: Array = places[mask]
        return kept


def _require(path: Path) -> None:
    """OSError where a file is lost, which a run may wait for."""
    os.close(open_regular(path))


def serve(source: BinaryIO, out: BinaryIO) -> None:
    """Answer until the other side is gone."""
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
    """The process."""
    answer_parent(serve, (*_core.stop_signals(), _core.save_signal()))


if __name__ == "__main__":
    main()
