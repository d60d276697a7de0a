"""Plain ids: little-endian uint16 or uint32 numbers without a head (.u16, .u32), or a one-dimensional .npy array."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.format import Columns, Format, Record, require_columns
from mudd_core.data.formats.npy import MAGIC, header_of

_WIDTHS: dict[str, np.dtype[np.generic]] = {".u16": np.dtype("<u2"), ".u32": np.dtype("<u4")}


def place_of(file: BoundedFile) -> tuple[np.dtype[np.generic], int, int]:
    """(type, offset, count) of the ids of a file."""
    if file.size >= len(MAGIC) and file.read(0, len(MAGIC), "the head") == MAGIC:
        head = header_of(file)
        if len(head.shape) != 1 or head.dtype.kind not in "iu":
            raise file.fault(0, f"expected a list of whole numbers, got shape {head.shape} of {head.dtype}")
        return head.dtype, head.offset, head.shape[0]
    kind = _WIDTHS.get(file.path.suffix.lower(), _WIDTHS[".u16"])
    if file.size % kind.itemsize:
        raise file.fault(file.size, f"expected a multiple of {kind.itemsize} bytes, got {file.size}")
    return kind, 0, file.size // kind.itemsize


def records(path: Path, columns: Columns) -> Iterator[Record]:
    """One record: all ids, as `input_ids`."""
    require_columns(path, columns, ["input_ids"])
    with BoundedFile(path) as file:
        kind, offset, count = place_of(file)
        data = file.read(offset, count * kind.itemsize, "ids")
    yield {"input_ids": np.frombuffer(data, kind).astype(np.int64)}


FORMAT = Format("tokens", (".u16", ".u32", ".npy"), lambda head: head.startswith(MAGIC), records, holds="ids")
