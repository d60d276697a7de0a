"""Plain token ids: .u16, .u32, .bin without an index (nanoGPT, llm.c), arrays of .npy, raw .npy files (OLMo)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mudd_core.base.types import Int64
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.format import FAIL, BadRecords, Columns, Format, Record, require_columns
from mudd_core.data.formats.npy import MAGIC, header_of
from mudd_core.data.formats.packed import packing_of

_U16, _U32 = np.dtype("<u2"), np.dtype("<u4")
_WIDTHS: dict[str, np.dtype[np.generic]] = {".u16": _U16, ".u32": _U32}
# A file of llm.c starts with 256 int32 values: a magic number, a version, the number of ids, and unused ones.
_LLM_C_HEAD = 1024
_LLM_C: dict[int, np.dtype[np.generic]] = {20240520: _U16, 20240801: _U32}
_PROBED = 1 << 16  # bytes that are read to recognise the type of the ids
_HEAD = 1 << 12


@dataclass(frozen=True)
class TokenPlace:
    """The location of the ids in a file: their type, the byte offset of the first one, and their number."""

    kind: np.dtype[np.generic]
    offset: int
    count: int

    def read(self, file: BoundedFile, first: int, count: int) -> Int64:
        """Return `count` ids starting at index `first`."""
        width = self.kind.itemsize
        data = file.read(self.offset + first * width, count * width, "ids")
        return np.frombuffer(data, self.kind).astype(np.int64)


def place_of(file: BoundedFile, vocab_size: int = 0) -> TokenPlace:
    """Return the location of a file's ids; raise FormatError for damage, or for a width that contradicts the name.

    vocab_size: decides the width if neither the name nor the header does: 4 bytes for more than 65,536 ids, else 2.
    """
    if file.size >= len(MAGIC) and file.read(0, len(MAGIC), "the head") == MAGIC:
        head = header_of(file)
        if len(head.shape) != 1 or head.dtype.kind not in "iu":
            raise file.fault(0, f"expected a list of whole numbers, got shape {head.shape} of {head.dtype}")
        return TokenPlace(head.dtype, head.offset, head.shape[0])
    if (place := _of_llm_c(file)) is not None:
        return place
    named = _WIDTHS.get(file.path.suffix.lower())
    kind = named or (_U32 if vocab_size > 1 << 16 else _U16)
    if file.size % kind.itemsize:
        raise file.fault(file.size, f"expected a multiple of {kind.itemsize} bytes, got {file.size}")
    if named is None and kind == _U16:
        _require_two_bytes(file)
    return TokenPlace(kind, 0, file.size // kind.itemsize)


def _of_llm_c(file: BoundedFile) -> TokenPlace | None:
    """Return the location of the ids in a file of llm.c; None for another file."""
    if file.path.suffix.lower() != ".bin" or file.size < _LLM_C_HEAD:
        return None
    magic, _, count = np.frombuffer(file.read(0, 12, "the head"), "<i4").tolist()
    kind = _LLM_C.get(magic)
    if kind is None:
        return None
    if count < 0 or _LLM_C_HEAD + count * kind.itemsize != file.size:
        raise file.fault(8, f"the header promises {count} ids of {kind}, the file has {file.size} bytes")
    return TokenPlace(kind, _LLM_C_HEAD, count)


def _require_two_bytes(file: BoundedFile) -> None:
    """Raise FormatError if each second 2-byte value is 0, because the ids then have 4 bytes."""
    data = np.frombuffer(file.read(0, min(file.size, _PROBED) // 4 * 4, "ids"), _U16)
    if data.size >= 64 and not data[1::2].any() and data[::2].any():
        raise file.fault(
            0, f"the ids seem to have 4 bytes, not 2; rename it to {file.path.with_suffix('.u32').name}"
        )


def records(path: Path, columns: Columns, bad: BadRecords = FAIL) -> Iterator[Record]:
    """Yield one record: all ids, as `input_ids`."""
    require_columns(path, columns, ["input_ids"])
    with BoundedFile(path) as file:
        place = place_of(file)
        yield {"input_ids": place.read(file, 0, place.count)}


def _has_ids(path: Path) -> bool:
    """Return whether a file may contain ids. A .bin file may also be compressed or text, which this test rules out."""
    if path.suffix.lower() != ".bin":
        return True
    with BoundedFile(path) as file:
        head = file.read(0, min(file.size, _HEAD), "the head")
    if packing_of(head) is not None:
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start < len(head) - 3  # otherwise the bytes end inside a character
    return b"\0" in head or len(head) < 64


FORMAT = Format(
    "tokens",
    (".u16", ".u32", ".npy", ".bin"),
    lambda head: head.startswith(MAGIC),
    records,
    holds="ids",
    has=_has_ids,
)
