"""Documents by their number: where the records of a file are, and reading them there, for each format.

A place is two numbers that the format understands. Compressed jsonl and Arrow streams have none: they are read in order
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import FormatError
from mudd_core.base.framing import HEADER_BYTES
from mudd_core.base.regular_files import open_binary
from mudd_core.data.corpus import cut
from mudd_core.data.documents.source import TextFiles
from mudd_core.data.formats import arrayrecord, arrow, jsonl, parquet, text, tfrecord
from mudd_core.data.formats.bounded import BoundedFile, CappedFile
from mudd_core.data.formats.columnar import rows
from mudd_core.data.formats.format import Value

Int64 = npt.NDArray[np.int64]
_BLOCK = 8 << 20
_GROUPS_KEPT = 4  # row groups whose values a reader keeps


class Reader(Protocol):
    """An open file."""

    def read(self, places: Int64, numbers: Int64) -> list[Value | None]:
        """The values of the column at these places; numbers: of the records, for messages."""


def places_of(texts: TextFiles, path: Path) -> Int64:
    """The places of a file's records, [n, 2]."""
    if texts.named == "text":
        return _places_of_text(path) if texts.cuts else np.zeros((1, 2), np.int64)
    return _PLACES[texts.named](path)


def reader_of(texts: TextFiles, path: Path) -> Reader:
    """An open file of texts."""
    if texts.named == "text":
        return _Pieces(path) if texts.cuts else _Whole(path)
    return _READERS[texts.named](path, texts.column)


def _places_of_text(path: Path) -> Int64:
    with open_binary(path) as stream:
        found = [(start, len(data)) for start, data in cut(stream, path.stat().st_size)]
    return np.array(found, np.int64).reshape(-1, 2)


def _places_of_lines(path: Path) -> Int64:
    """Offset and length of each line that is not empty."""
    ends: list[Int64] = []
    empty: list[int] = []  # perhaps: lines that begin with white space
    with BoundedFile(path) as file:
        begin = 0
        for at in range(0, file.size, _BLOCK):
            block = np.frombuffer(file.read(at, min(_BLOCK, file.size - at), "lines"), np.uint8)
            found = np.flatnonzero(block == 10).astype(np.int64) + (at + 1)
            ends.append(found)
            starts = np.concatenate(([begin], found)) - at
            here = starts[(starts >= 0) & (starts < block.size)]
            empty += (here[block[here] <= 32] + at).tolist()
            begin = at + block.size if found.size and found[-1] == at + block.size else -1
        whole = np.concatenate([np.empty(0, np.int64), *ends])
        if file.size and (not whole.size or whole[-1] != file.size):
            whole = np.append(whole, file.size)
        starts = np.concatenate(([0], whole[:-1])) if whole.size else whole
        blank = [
            start
            for start in sorted(set(empty))
            if not file.read(start, int(whole[np.searchsorted(starts, start)]) - start, "a line").strip()
        ]
    places = np.stack([starts, whole - starts], axis=1).astype(np.int64)
    return places[~np.isin(starts, blank)] if blank else places


def _places_of_frames(path: Path) -> Int64:
    with BoundedFile(path) as file:
        found = np.fromiter(tfrecord.offsets(file), np.int64)
    return np.stack([found, np.zeros_like(found)], axis=1)


def _places_of_array(path: Path) -> Int64:
    reader = arrayrecord.open_file(path)
    count = arrayrecord.counted(reader, path)
    reader.close()
    return np.stack([np.arange(count), np.zeros(count)], axis=1).astype(np.int64)


def _in_groups(counts: list[int]) -> Int64:
    found = [np.stack([np.full(n, group), np.arange(n)], axis=1) for group, n in enumerate(counts)]
    return np.concatenate([np.empty((0, 2)), *found]).astype(np.int64)


def _places_of_parquet(path: Path) -> Int64:
    with CappedFile(path) as stream:
        data = parquet.open_file(path, stream)[0].metadata
        return _in_groups([data.row_group(group).num_rows for group in range(data.num_row_groups)])


def _places_of_arrow(path: Path) -> Int64:
    with CappedFile(path) as stream:
        reader, _ = arrow.open_file(path, stream)
        return _in_groups([batch.num_rows for batch in arrow.batches(reader, path)])


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


class _Lines:
    """Lines of jsonl."""

    def __init__(self, path: Path, column: str) -> None:
        self._file, self._column = BoundedFile(path, reads_again=True), column

    def read(self, places: Int64, numbers: Int64) -> list[Value | None]:
        return [
            self._value(at, size, number)
            for (at, size), number in zip(places.tolist(), numbers.tolist(), strict=True)
        ]

    def _value(self, at: int, size: int, number: int) -> Value | None:
        path = self._file.path
        jsonl.require_length(size, path, at)
        line = self._file.read(at, size, "a line")
        return jsonl.record_of(line, (self._column,), path, number, at).get(self._column)


class _Frames:
    """Records of TFRecord."""

    def __init__(self, path: Path, column: str) -> None:
        self._file, self._column = BoundedFile(path, reads_again=True), column

    def read(self, places: Int64, numbers: Int64) -> list[Value | None]:
        path, column = self._file.path, self._column
        return [
            tfrecord.feature_of(
                tfrecord.payload_at(self._file, at), column, path, at + HEADER_BYTES, int(number)
            )
            for at, number in zip(places[:, 0].tolist(), numbers, strict=True)
        ]


class _Array:
    """Records of ArrayRecord."""

    def __init__(self, path: Path, column: str) -> None:
        self._path, self._column, self._reader = path, column, arrayrecord.open_file(path)

    def read(self, places: Int64, numbers: Int64) -> list[Value | None]:
        found = arrayrecord.read_at(self._reader, self._path, places[:, 0].tolist())
        return [
            tfrecord.feature_of(payload, self._column, self._path, 0, int(number))
            for payload, number in zip(found, numbers, strict=True)
        ]


class _Groups:
    """Rows of tables in groups; the values of a few groups are kept."""

    def __init__(self, path: Path, column: str) -> None:
        self._path, self._column = path, column
        self._stream = CappedFile(path)
        self._kept: dict[int, list[Value]] = {}
        self._open()

    def _open(self) -> None:
        self._file, _ = parquet.open_file(self._path, self._stream)

    def _batches(self, group: int) -> Iterator[Any]:
        return parquet.batches(self._file, self._stream, (self._column,), self._path, [group])

    def read(self, places: Int64, numbers: Int64) -> list[Value | None]:
        found: list[Value | None] = [None] * len(places)
        for group in np.unique(places[:, 0]).tolist():
            values = self._values(group)
            for slot in np.flatnonzero(places[:, 0] == group):
                if places[slot, 1] >= len(values):
                    reason = f"row group {group} has {len(values)} rows: it changed"
                    raise FormatError(str(self._path), 0, reason)
                found[slot] = values[places[slot, 1]]
        return found

    def _values(self, group: int) -> list[Value]:
        if group not in self._kept:
            named = rows(self._batches(group), (self._column,), self._path)
            last = list(self._kept.items())[-_GROUPS_KEPT + 1 :]
            self._kept = {**dict(last), group: [row[self._column] for row in named]}
        return self._kept[group]


class _ArrowGroups(_Groups):
    """The same of an Arrow file."""

    def _open(self) -> None:
        self._file, _ = arrow.open_file(self._path, self._stream)

    def _batches(self, group: int) -> Iterator[Any]:
        return arrow.batches(self._file, self._path, [group])


_PLACES = {
    "jsonl": _places_of_lines,
    "tfrecord": _places_of_frames,
    "arrayrecord": _places_of_array,
    "parquet": _places_of_parquet,
    "arrow": _places_of_arrow,
}
_READERS: dict[str, Callable[[Path, str], Reader]] = {
    "jsonl": _Lines,
    "tfrecord": _Frames,
    "arrayrecord": _Array,
    "parquet": _Groups,
    "arrow": _ArrowGroups,
}
