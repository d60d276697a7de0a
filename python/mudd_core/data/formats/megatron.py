"""Indexed data sets of Megatron and GPT-NeoX: NAME.idx with lengths and offsets, NAME.bin with ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import FormatError
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.format import FAIL, BadRecords, Columns, Format, Record, require_columns

MAGIC = b"MMIDIDX\0\0"
KINDS = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_HEAD = 34
_MOST = 1 << 40  # maximum number of sequences
Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Index:
    """The content of NAME.idx.

    kind: the type of the ids. sizes: the number of ids in each sequence. places: the byte in NAME.bin at which each
    starts.
    documents: the first sequence of each document; the last entry is the number of sequences.
    """

    kind: np.dtype[np.generic]
    sizes: npt.NDArray[np.int32]
    places: Int64
    documents: Int64


def pair_of(path: Path) -> tuple[Path, Path]:
    """Return (NAME.idx, NAME.bin) for a path to either file, or for NAME."""
    name = path.with_suffix("") if path.suffix in (".idx", ".bin") else path
    return Path(f"{name}.idx"), Path(f"{name}.bin")


def read_index(path: Path) -> Index:
    """Return the index, checked against both files; raise FormatError for damage."""
    idx, binary = pair_of(path)
    with BoundedFile(idx) as file, BoundedFile(binary) as ids:
        head = file.read(0, _HEAD, "the head")
        version = int.from_bytes(head[9:17], "little")
        if head[:9] != MAGIC or version != 1:
            raise file.fault(
                0, f"expected an index of version 1 (MMIDIDX), got version {version} or other bytes"
            )
        if head[17] not in KINDS:
            raise file.fault(
                17, f"expected the type of whole numbers ({', '.join(map(str, KINDS))}), got {head[17]}"
            )
        count, marks = (int.from_bytes(head[at : at + 8], "little") for at in (18, 26))
        if count > _MOST or marks > _MOST or _HEAD + 12 * count + 8 * marks != file.size:
            raise file.fault(18, f"{count} sequences and {marks} document marks do not fit {file.size} bytes")
        # The arrays may start at an unaligned byte, so they are copied.
        sizes = np.frombuffer(file.read(_HEAD, 4 * count, "lengths"), "<i4")
        places = np.frombuffer(file.read(_HEAD + 4 * count, 8 * count, "places"), "<i8")
        documents = np.frombuffer(file.read(_HEAD + 12 * count, 8 * marks, "documents"), "<i8")
        index = Index(np.dtype(KINDS[head[17]]), sizes, places, documents)
        _check(index, file, ids.size)
    return index


def _check(index: Index, file: BoundedFile, size: int) -> None:
    """Raise FormatError unless all sequences are inside the .bin, in order, and documents start at sequences."""
    count, width = index.sizes.size, index.kind.itemsize
    wrong = np.flatnonzero(index.sizes < 0)
    if wrong.size:
        raise file.fault(
            _HEAD + 4 * int(wrong[0]), f"sequence {wrong[0]} has the length {index.sizes[wrong[0]]}"
        )
    below = index.places < 0
    over = index.places > size - index.sizes.astype(np.int64) * width
    wrong = np.flatnonzero(below | over)
    if wrong.size:
        place = index.places[wrong[0]]
        reason = (
            f"sequence {wrong[0]} at byte {place} is not within the .bin of {size} bytes; was it truncated?"
        )
        raise file.fault(_HEAD + 4 * count + 8 * int(wrong[0]), reason)
    if (np.diff(index.places) < 0).any():
        raise file.fault(_HEAD + 4 * count, "the offsets of the sequences do not increase")
    marks = index.documents
    if not marks.size or marks[0] != 0 or marks[-1] != count or (np.diff(marks) < 0).any():
        raise file.fault(_HEAD + 12 * count, f"the document indices do not increase from 0 to {count}")


def records(path: Path, columns: Columns, bad: BadRecords = FAIL) -> Iterator[Record]:
    """Yield the sequences of a data set as `input_ids`."""
    require_columns(path, columns, ["input_ids"])
    index = read_index(path)
    with BoundedFile(pair_of(path)[1]) as file:
        for size, place in zip(index.sizes, index.places, strict=True):
            data = file.read(int(place), int(size) * index.kind.itemsize, "a sequence")
            yield {"input_ids": np.frombuffer(data, index.kind).astype(np.int64)}


def kind_for(vocab_size: int) -> tuple[int, np.dtype[np.generic]]:
    """Return (code, type) for writing ids below `vocab_size`."""
    code = 8 if vocab_size <= 1 << 16 else 4
    return code, np.dtype(KINDS[code])


def head_bytes(code: int, sizes: Int64, documents: Int64) -> bytes:
    """Return the content of NAME.idx for sequences that NAME.bin stores one after another."""
    kind = np.dtype(KINDS[code])
    if sizes.size and int(sizes.max()) >= 1 << 31:
        raise FormatError("NAME.idx", 0, "a sequence is longer than 2^31 - 1 tokens")
    places = (np.cumsum(sizes) - sizes) * kind.itemsize
    numbers = (1).to_bytes(8, "little") + bytes([code])
    counts = sizes.size.to_bytes(8, "little") + documents.size.to_bytes(8, "little")
    arrays = (sizes.astype("<i4"), places.astype("<i8"), documents.astype("<i8"))
    return MAGIC + numbers + counts + b"".join(array.tobytes() for array in arrays)


def _has_index(path: Path) -> bool:
    """Return whether NAME.idx of a file exists. A .bin file without it has plain ids (formats/tokens.py)."""
    return pair_of(path)[0].exists()


FORMAT = Format(
    "megatron", (".idx", ".bin"), lambda head: head.startswith(MAGIC), records, holds="ids", has=_has_index
)
