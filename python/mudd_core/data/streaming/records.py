"""The positions of the records in a stream's files: found once, and stored in the cache folder with a checksum.

No text is tokenized for this: lines are found by their ends, and tables and ArrayRecords have counts. The whole text is
read only if documents are held out by their hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from mudd_core.base.regular_files import open_binary, write_file
from mudd_core.base.types import Int64
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.sources.corpus import Progress
from mudd_core.data.streaming.processes import Processes
from mudd_core.data.streaming.recipe import Recipe

_IN_MEMORY = (
    1 << 16
)  # largest size in bytes of positions that stay in memory; others are read from their file
_OPEN_FILES = 64
_CHECKED = 1 << 20  # bytes in one read


class Places(Protocol):
    """The positions of one file's documents: an array [n, 2], or a file that contains one."""

    def __len__(self) -> int: ...
    def __getitem__(self, numbers: Int64, /) -> Int64: ...


class _OpenFiles:
    """The open files of positions. Their number is limited, because thousands would exhaust the file descriptors."""

    def __init__(self) -> None:
        self._files: OrderedDict[Path, BoundedFile] = OrderedDict()

    def get(self, path: Path) -> BoundedFile:
        """Return the open file; raise OSError if it is gone. A run may wait for it."""
        if path not in self._files:
            self._files[path] = BoundedFile(path, reads_again=True)
            if len(self._files) > _OPEN_FILES:
                self._files.popitem(last=False)[1].close()
        self._files.move_to_end(path)
        return self._files[path]


class _StoredPlaces:
    """The positions of a large file, which stay in the cache folder."""

    def __init__(self, path: Path, count: int, files: _OpenFiles) -> None:
        self._path, self._count, self._files = path, count, files

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, numbers: Int64, /) -> Int64:
        file = self._files.get(self._path)
        found = b"".join(file.read(16 * number, 16, "the place of a record") for number in numbers.tolist())
        return np.frombuffer(found, "<i8").reshape(-1, 2).astype(np.int64)


class Records:
    """The positions of the documents of all files. The index of a document counts over all files."""

    def __init__(self, places: Sequence[Places]) -> None:
        self._places = places
        self._ends = np.cumsum([len(one) for one in places], dtype=np.int64)

    @property
    def count(self) -> int:
        """The number of documents in all files."""
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def counts(self) -> list[int]:
        """The number of documents in each file."""
        return [len(one) for one in self._places]

    def find(self, documents: Sequence[int]) -> tuple[Int64, Int64, Int64]:
        """Return file indices, document indices in these files, and positions [n, 2]."""
        wanted = np.array(documents, np.int64)
        files = np.searchsorted(self._ends, wanted, side="right")
        numbers = wanted - np.where(files > 0, self._ends[files - 1], 0)
        places = np.empty((len(wanted), 2), np.int64)
        for file in np.unique(files).tolist():
            here = np.flatnonzero(files == file)
            places[here] = self._places[file][numbers[here]]
        return files.astype(np.int64), numbers, places


def find_records(processes: Processes, cache: Path, progress: Progress | None) -> Records:
    """Return the records of all files. The processes search files without stored positions, several files at once."""
    recipe = processes.recipe
    files = recipe.texts.files
    kept = [_kept(recipe, file, cache) for file in files]
    opened = _OpenFiles()
    known = [_read(file, opened) for file in kept]
    missing = [number for number, found in enumerate(known) if found is None]
    tickets = {
        number: processes.submit({"do": "index", "file": number}, file=str(files[number]), what="its records")
        for number in missing
    }
    for done, number in enumerate(missing):
        if progress is not None:
            progress("finding records", done, len(missing))
        _, (places,) = processes.result(tickets[number])
        _write(kept[number], places)
        stored = _read(kept[number], opened)
        known[number] = places.astype(np.int64) if stored is None else stored
    if missing and progress is not None:
        progress("finding records", len(missing), len(missing))
    return Records([found for found in known if found is not None])


def _kept(recipe: Recipe, file: Path, cache: Path) -> Path:
    state = file.stat()
    texts = recipe.texts
    name = os.fsencode(file.absolute()) + (
        f"\0{state.st_size},{state.st_mtime_ns},{state.st_ctime_ns},{texts.named},{texts.column},{texts.cuts},"
        f"{recipe.kept}"
    ).encode("utf-8", "surrogateescape")
    return cache / "records" / hashlib.sha256(name).hexdigest()[:24]


def _read(kept: Path, opened: _OpenFiles) -> Places | None:
    """Return the stored positions after a check of their checksum; None if they are missing or damaged."""
    from mudd_core import _core

    with contextlib.suppress(OSError), open_binary(kept) as file:
        size = os.fstat(file.fileno()).st_size - 4
        if size < 0 or size % 16:
            return None
        if size <= _IN_MEMORY:
            data = file.read(size)
            crc = _core.crc32c(data)
        else:
            crc = 0
            for at in range(0, size, _CHECKED):
                part = file.read(min(_CHECKED, size - at))
                crc = _core.crc32c_combine(crc, _core.crc32c(part), len(part))
        if crc == int.from_bytes(file.read(), "little"):
            if size <= _IN_MEMORY:
                return np.frombuffer(data, "<i8").reshape(-1, 2).astype(np.int64)
            return _StoredPlaces(kept, size // 16, opened)
    return None


def _write(kept: Path, places: Int64) -> None:
    from mudd_core import _core

    kept.parent.mkdir(parents=True, exist_ok=True)
    data = places.astype("<i8").tobytes()
    write_file(kept, data + _core.crc32c(data).to_bytes(4, "little"))
