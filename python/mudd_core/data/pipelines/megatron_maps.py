"""GPT-NeoX's maps of an indexed data set: the order of documents, the ids before each block of documents, and the order
of sequences.

Sequence k of T + 1 ids starts at id k T of the documents in their order, so consecutive sequences share one id. The
sums of blocks determine the sequence's document. They need far less memory than a position for each sequence.
"""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.base.types import Array, Int32, Int64
from mudd_core.data.cache.folder import locked
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.megatron import Index
from mudd_core.data.formats.npy import header_of
from mudd_core.data.pipelines.kept_numbers import Held, Numbers, opened, write
from mudd_core.data.sources.corpus import Progress

_NAME = re.compile(r"_indexmap_(\d+)ns_(\d+)sl_(\d+)s_doc_idx\.npy$")


_HELD_BYTES = 16 << 20  # largest size in bytes of maps that stay in memory
_STRIDE = 256  # documents between two sums


@dataclass(frozen=True)
class Maps:
    """The maps of a split. documents: their order. sums: ids before every 256th document. order: None if sequential."""

    documents: Numbers
    sums: Int64
    order: Numbers | None
    windows: int

    def pieces(self, place: int, sizes: Int32, seq_len: int) -> Iterator[tuple[int, int, int]]:
        """Yield (document, first id, count) for each document in the sequence at position `place` of the order."""
        window = place if self.order is None else int(self.order.read(place, 1)[0])
        at, left = window * seq_len, seq_len + 1
        block = int(np.searchsorted(self.sums, at, side="right")) - 1
        first = at - int(self.sums[block])  # the first id of the block, then of each document
        while left:
            documents = self.documents.read(block * _STRIDE, _STRIDE)
            ends = np.cumsum(sizes[documents], dtype=np.int64)
            begin = int(np.searchsorted(ends, first, side="right"))
            first -= int(ends[begin - 1]) if begin else 0
            for sequence in documents[begin:].tolist():
                count = min(int(sizes[sequence]) - first, left)
                yield sequence, first, count
                left, first = left - count, 0
                if not left:
                    return
            block += 1


def epochs_for(samples: int, tokens: int, seq_len: int) -> int:
    """Return the smallest number of epochs with at least `samples` sequences."""
    if tokens < 1:
        raise UserError("[data.path] expected ids, got an indexed data set without one")
    epochs = max(1, (samples * seq_len + tokens) // tokens - 1)
    while (epochs * tokens - 1) // seq_len < samples:
        epochs += 1
    return epochs


def drawn(
    sizes: Int32, chosen: Int64, epochs: int, seq_len: int, seed: int, progress: Progress
) -> Iterator[Array]:
    """Yield documents, sums and order of sequences: one RandomState shuffles the documents, then the sequences.

    Each array is built when the caller requests it, so that the one before can be freed.
    """
    draw = np.random.RandomState(seed % (1 << 32))
    documents = np.tile(chosen.astype(np.int32), epochs)
    progress(f"shuffling {documents.size:,} documents of {epochs:,} epochs", 0, 1)
    draw.shuffle(documents)
    sums = sums_of(sizes, documents)
    yield documents
    del documents
    yield sums
    windows = windows_of(sums, seq_len)
    progress(f"shuffling {windows:,} sequences of {epochs:,} epochs", 0, 1)
    order = np.arange(windows, dtype=np.uint32 if windows + 1 < (1 << 32) - 1 else np.int64)
    draw.shuffle(order)
    yield order


@dataclass(frozen=True)
class MapSizes:
    """The bytes of the documents with their sums, and of the order of sequences."""

    documents: int
    order: int

    @property
    def all(self) -> int:
        return self.documents + self.order

    @property
    def stored(self) -> bool:
        """Return whether a start writes the maps to a file."""
        return self.all > _HELD_BYTES


def map_sizes(documents: int, tokens: int, epochs: int, seq_len: int) -> MapSizes:
    """Return the sizes for the documents and ids of an epoch."""
    entries, windows = epochs * documents, max(0, epochs * tokens - 1) // seq_len
    return MapSizes(
        4 * entries + 8 * (entries // _STRIDE + 1), (4 if windows < (1 << 32) - 2 else 8) * windows
    )


def built(
    sizes: Int32,
    chosen: Int64,
    epochs: int,
    seq_len: int,
    seed: int,
    root: Path,
    progress: Progress,
) -> Maps:
    """Return the maps of these documents. Small maps stay in memory; others are built once, in a file below root.

    Raise SaveError if the disk rejects it.
    """
    tokens = int(sizes[chosen].sum(dtype=np.int64))
    parts = (sizes, chosen, epochs, seq_len, seed)
    if not map_sizes(chosen.size, tokens, epochs, seq_len).stored:
        documents, sums, order = drawn(*parts, lambda *_: None)
        return Maps(Held(documents), sums, Held(order), int(order.size))
    digest = hashlib.sha256(sizes.tobytes())
    digest.update(chosen.tobytes() + repr((epochs, seq_len, seed)).encode())
    folder = root / "maps"
    path = folder / f"megatron-{digest.hexdigest()[:24]}"
    with locked(folder, f"{path.name}.lock", progress):
        found = opened(path, 3)
        if found is None:
            try:
                write(path, drawn(*parts, progress), 3)
            except OSError as error:
                raise SaveError(
                    f"[data.cache_dir] cannot write the maps {path}: {error.strerror or error}; free some space or "
                    "choose another data.cache_dir"
                ) from None
            found = opened(path, 3)
    if found is None:
        raise FormatError(str(path), 0, "the maps do not read back as they were written; check the disk")
    kept, sums_kept, order_kept = found
    return Maps(kept, sums_kept.read(0, sums_kept.size), order_kept, order_kept.size)


def in_order(sizes: Int32, chosen: Int64, seq_len: int) -> Maps:
    """Return maps with these documents and their sequences in order."""
    sums = sums_of(sizes, chosen)
    return Maps(Held(chosen), sums, None, windows_of(sums, seq_len))


def sums_of(sizes: Int32, documents: Array) -> Int64:
    """Return the number of ids before document 0, 256, 512, ..., and in all documents."""
    found = [0]
    for first in range(0, documents.size, _STRIDE << 12):
        lengths = sizes[documents[first : first + (_STRIDE << 12)]].astype(np.int64)
        blocks = np.add.reduceat(lengths, np.arange(0, lengths.size, _STRIDE))
        found += (found[-1] + np.cumsum(blocks)).tolist()
    return np.array(found, np.int64)


def windows_of(sums: Int64, seq_len: int) -> int:
    """Return the number of sequences of T + 1 ids that start every T ids."""
    return max(0, int(sums[-1]) - 1) // seq_len


def window_starts(sizes: Int32, documents: Array, seq_len: int) -> Int64:
    """Return the position at which each sequence starts, then the end of the last sequence."""
    ends = np.cumsum(sizes[documents], dtype=np.int64)
    if not ends.size or not ends[-1]:  # without ids there is no sequence
        return np.zeros((1, 2), np.int64)
    count = (int(ends[-1]) - 1) // seq_len
    ids = np.arange(count + 1, dtype=np.int64) * seq_len
    place = np.searchsorted(ends, ids, side="right")
    place[0] = 0
    before = np.where(place > 0, ends[place - 1], 0)
    return np.stack([place, ids - before], axis=1)


def beside(binary: Path, split: str, seq_len: int, seed: int) -> tuple[Path, Path, Path] | None:
    """Return the maps that GPT-NeoX stored next to NAME.bin for this split, length and seed; None if there are none."""
    name = binary.with_suffix("").name
    for path in sorted(binary.parent.glob(f"{glob.escape(name)}*_doc_idx.npy")):
        found = _NAME.search(path.name)
        kind = path.name[len(name) : found.start()] if found else ""
        if found and int(found[2]) == seq_len and int(found[3]) == seed and kind in ("", f"_{split}"):
            stem = path.name.removesuffix("doc_idx.npy")
            return path, path.with_name(stem + "sample_idx.npy"), path.with_name(stem + "shuffle_idx.npy")
    return None


def read(paths: tuple[Path, Path, Path], index: Index, seq_len: int) -> Maps:
    """Return maps from files, checked against the index; raise FormatError if they belong to another corpus."""
    documents, starts, order = (_array(path, columns) for path, columns in zip(paths, (1, 2, 1), strict=True))
    count = index.sizes.size
    if documents.size and (documents.min() < 0 or documents.max() >= count):
        raise _other(paths[0], f"names sequence {documents.max()}, and the data set has {count}")
    expected = window_starts(index.sizes, documents, seq_len)
    if starts.shape != expected.shape or not np.array_equal(starts.astype(np.int64), expected):
        raise _other(paths[1], "does not match the lengths of the documents")
    if order.size != starts.shape[0] - 1 or not np.array_equal(np.sort(order), np.arange(order.size)):
        raise _other(paths[2], f"is not an order of {starts.shape[0] - 1} sequences")
    return Maps(Held(documents), sums_of(index.sizes, documents), Held(order), int(order.size))


def _array(path: Path, columns: int) -> Array:
    with BoundedFile(path) as file:
        head = header_of(file)
        if head.dtype.kind not in "iu" or len(head.shape) != columns or (columns == 2 and head.shape[1] != 2):
            raise file.fault(0, f"expected a map of whole numbers, got shape {head.shape} of {head.dtype}")
        data = file.read(head.offset, file.size - head.offset, "a map")
    return np.frombuffer(data, head.dtype).reshape(head.shape)


def _other(path: Path, reason: str) -> FormatError:
    return FormatError(
        str(path), 0, f"the map is of another corpus: it {reason}; remove it, and it is rebuilt"
    )
