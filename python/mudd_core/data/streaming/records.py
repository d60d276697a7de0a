"""The records of a stream's files by number: found once a file, kept in the cache folder with a checksum.

No text is tokenized for it: lines are found by their ends, tables and ArrayRecords have counts. All text is read only
where documents are held out by their hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mudd_core.base.regular_files import open_binary, write_file
from mudd_core.base.types import Int64
from mudd_core.data.corpus import Progress
from mudd_core.data.streaming.processes import Processes
from mudd_core.data.streaming.recipe import Recipe


class Records:
    """Places of the documents of all files, by their number over all of them."""

    def __init__(self, places: Sequence[Int64]) -> None:
        self._places = places
        self._ends = np.cumsum([len(one) for one in places], dtype=np.int64)

    @property
    def count(self) -> int:
        """Of all files."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def find(self, documents: Sequence[int]) -> tuple[Int64, Int64, Int64]:
        """Files, numbers of the documents among those of their file, and places [n, 2]."""
        wanted = np.array(documents, np.int64)
        files = np.searchsorted(self._ends, wanted, side="right")
        numbers = wanted - np.where(files > 0, self._ends[files - 1], 0)
        places = [self._places[file][number] for file, number in zip(files, numbers, strict=True)]
        return files.astype(np.int64), numbers, np.array(places, np.int64).reshape(-1, 2)


def find_records(processes: Processes, cache: Path, progress: Progress | None) -> Records:
    """The records of all files; those not yet known are found by the processes, several files at once."""
    recipe = processes.recipe
    files = recipe.texts.files
    kept = [_kept(recipe, file, cache) for file in files]
    known = [_read(file) for file in kept]
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
        known[number] = places.astype(np.int64)
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


def _read(kept: Path) -> Int64 | None:
    """The places that are kept, mapped; None where there are none or damaged ones."""
    from mudd_core import _core

    with contextlib.suppress(OSError), open_binary(kept) as file:
        size = os.fstat(file.fileno()).st_size
        if size % 16 != 4:
            return None
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if _core.crc32c(memoryview(data)[:-4]) == int.from_bytes(data[-4:], "little"):
            return np.frombuffer(data, "<i8", (size - 4) // 8).reshape(-1, 2)
    return None


def _write(kept: Path, places: Int64) -> None:
    from mudd_core import _core

    kept.parent.mkdir(parents=True, exist_ok=True)
    data = places.astype("<i8").tobytes()
    write_file(kept, data + _core.crc32c(data).to_bytes(4, "little"))
