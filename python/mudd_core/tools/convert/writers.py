"""Writers of the formats that `data convert` makes. Each is closed and synced before its file gets its name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

import numpy as np

from mudd_core.base.framing import framed
from mudd_core.base.packages import needed
from mudd_core.base.types import Int64
from mudd_core.data.formats.megatron import head_bytes, kind_for

I_contra = TypeVar("I_contra", contravariant=True)


class Writer(Protocol[I_contra]):
    """Takes items of its format one by one; `close` completes the files."""

    def write(self, item: I_contra) -> None: ...
    def close(self) -> None: ...


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()


class TfrecordWriter:
    """Payloads as framed records."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, item: bytes) -> None:
        self._file.write(framed(item))

    def close(self) -> None:
        _sync(self._file)


class ArrayRecordWriter:
    """Payloads, one in a chunk, as the loader of the original programs expects."""

    def __init__(self, path: Path) -> None:
        module = needed(
            "array_record.python.array_record_module", "[data convert] --to", "to write ArrayRecord files"
        )
        self._path, self._writer = path, module.ArrayRecordWriter(str(path), "group_size:1")

    def write(self, item: bytes) -> None:
        self._writer.write(item)

    def close(self) -> None:
        self._writer.close()
        with self._path.open("rb") as file:
            os.fsync(file.fileno())


class LinesWriter:
    """Texts as JSON objects, one a line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, item: str) -> None:
        self._file.write(json.dumps({"text": item}, ensure_ascii=False).encode() + b"\n")

    def close(self) -> None:
        _sync(self._file)


class IndexedWriter:
    """Lists of ids as NAME.bin; NAME.idx follows when it is closed. path: NAME.bin."""

    def __init__(self, path: Path, vocab_size: int) -> None:
        self._code, self._kind = kind_for(vocab_size)
        self._index = path.with_suffix(".idx")
        self._sizes: list[int] = []
        self._file = path.open("wb")

    def write(self, item: Int64) -> None:
        ids = np.asarray(item, self._kind)
        self._sizes.append(ids.size)
        self._file.write(ids.tobytes())

    def close(self) -> None:
        _sync(self._file)
        sizes = np.array(self._sizes, np.int64)
        index = self._index.open("wb")
        index.write(head_bytes(self._code, sizes, np.arange(sizes.size + 1)))
        _sync(index)
