"""GPT-NeoX's maps of an indexed data set: order of the documents, where each window begins, order of the windows.

Window k of T + 1 ids begins at id k T of the documents in their order, so neighbours share one id.
"""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import FormatError, UserError
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.megatron import Index
from mudd_core.data.formats.npy import header_of
from mudd_core.data.pipelines.ids_data import Int64

_NAME = re.compile(r"_indexmap_(\d+)ns_(\d+)sl_(\d+)s_doc_idx\.npy$")


@dataclass(frozen=True)
class Maps:
    """documents: sequences in order. starts: [windows + 1, 2], position in documents and id. order: of the windows."""

    documents: npt.NDArray[Any]
    starts: npt.NDArray[Any]
    order: npt.NDArray[Any]

    @property
    def windows(self) -> int:
        return int(self.order.size)


def epochs_for(samples: int, tokens: int, seq_len: int) -> int:
    """The fewest epochs that have so many windows."""
    if tokens < 1:
        raise UserError("[data.path] expected ids, got an indexed data set without one")
    epochs = max(1, (samples * seq_len + tokens) // tokens - 1)
    while (epochs * tokens - 1) // seq_len < samples:
        epochs += 1
    return epochs


def built(sizes: npt.NDArray[np.int32], chosen: Int64, epochs: int, seq_len: int, seed: int) -> Maps:
    """The maps of these sequences: documents of all epochs shuffled together, then windows, by one RandomState."""
    draw = np.random.RandomState(seed % (1 << 32))
    documents = np.tile(chosen.astype(np.int32), epochs)
    draw.shuffle(documents)
    starts = window_starts(sizes, documents, seq_len)
    order = np.arange(starts.shape[0] - 1, dtype=np.uint32 if starts.shape[0] < (1 << 32) - 1 else np.int64)
    draw.shuffle(order)
    return Maps(documents, starts, order)


def window_starts(sizes: npt.NDArray[np.int32], documents: npt.NDArray[Any], seq_len: int) -> Int64:
    """Where each window begins, and where the last one ends."""
    ends = np.cumsum(sizes[documents], dtype=np.int64)
    if not ends.size or not ends[-1]:  # no ids: no window
        return np.zeros((1, 2), np.int64)
    count = (int(ends[-1]) - 1) // seq_len
    ids = np.arange(count + 1, dtype=np.int64) * seq_len
    place = np.searchsorted(ends, ids, side="right")
    place[0] = 0
    before = np.where(place > 0, ends[place - 1], 0)
    return np.stack([place, ids - before], axis=1)


def beside(binary: Path, split: str, seq_len: int, seed: int) -> tuple[Path, Path, Path] | None:
    """The maps that GPT-NeoX left beside NAME.bin for this split, length and seed; None if there are none."""
    name = binary.with_suffix("").name
    for path in sorted(binary.parent.glob(f"{glob.escape(name)}*_doc_idx.npy")):
        found = _NAME.search(path.name)
        kind = path.name[len(name) : found.start()] if found else ""
        if found and int(found[2]) == seq_len and int(found[3]) == seed and kind in ("", f"_{split}"):
            stem = path.name.removesuffix("doc_idx.npy")
            return path, path.with_name(stem + "sample_idx.npy"), path.with_name(stem + "shuffle_idx.npy")
    return None


def read(paths: tuple[Path, Path, Path], index: Index, seq_len: int) -> Maps:
    """Maps from files, checked against the index. FormatError where they are of another corpus."""
    documents, starts, order = (_array(path, columns) for path, columns in zip(paths, (1, 2, 1), strict=True))
    count = index.sizes.size
    if documents.size and (documents.min() < 0 or documents.max() >= count):
        raise _other(paths[0], f"names sequence {documents.max()}, and the data set has {count}")
    expected = window_starts(index.sizes, documents, seq_len)
    if starts.shape != expected.shape or not np.array_equal(starts.astype(np.int64), expected):
        raise _other(paths[1], "does not fit the lengths of the documents")
    if order.size != starts.shape[0] - 1 or not np.array_equal(np.sort(order), np.arange(order.size)):
        raise _other(paths[2], f"is no order of {starts.shape[0] - 1} windows")
    return Maps(documents, starts, order)


def _array(path: Path, columns: int) -> npt.NDArray[Any]:
    with BoundedFile(path) as file:
        head = header_of(file)
        if head.dtype.kind not in "iu" or len(head.shape) != columns or (columns == 2 and head.shape[1] != 2):
            raise file.fault(0, f"expected a map of whole numbers, got shape {head.shape} of {head.dtype}")
        data = file.read(head.offset, file.size - head.offset, "a map")
    return np.frombuffer(data, head.dtype).reshape(head.shape)


def _other(path: Path, reason: str) -> FormatError:
    return FormatError(
        str(path), 0, f"the map is of another corpus: it {reason}; remove it and it is made again"
    )
