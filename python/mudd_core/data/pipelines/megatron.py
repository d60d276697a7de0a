"""The pipeline `megatron`: indexed data sets, read as documents by GPT-NeoX's maps, or as items in training order.

If every item has T + 1 ids, the data set already is in training order: sample s is item s. Else sequences are sampled
from shuffled documents (megatron_maps.py). Without a separate data set, the documents are divided 969 : 30 : 1 into
training, validation and test.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.storage import is_url
from mudd_core.base.types import Int64, JsonObject
from mudd_core.base.units import bytes_text
from mudd_core.config import Config
from mudd_core.data.documents.origins import Origin, Place
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.format import require_ids
from mudd_core.data.formats.megatron import Index, pair_of, read_index
from mudd_core.data.pipelines import megatron_maps as maps
from mudd_core.data.pipelines.ids_data import (
    IdData,
    IdRows,
    fingerprint_of,
    require_batch,
    require_validation,
    vocabulary_of,
)
from mudd_core.data.progress import ConsoleProgress
from mudd_core.data.rows import Pipeline, Preparation, RowShape
from mudd_core.data.sources.access import cache_root
from mudd_core.data.sources.corpus import Progress, Split
from mudd_core.data.sources.splits import sources_of

# GPT-NeoX's default split of the documents into training, validation and test, in thousandths
_PARTS_OF_1000 = (969, 30, 1)


class Sequences:
    """The items of one indexed data set, by index."""

    def __init__(self, binary: Path, vocab_size: int) -> None:
        self.path, self.index = binary, read_index(binary)
        self._vocab_size = vocab_size
        self._file = BoundedFile(pair_of(binary)[1])

    def reopen(self) -> None:
        """Reopen the ids after a run has lost the file."""
        self._file.close()
        self._file = BoundedFile(pair_of(self.path)[1], reads_again=True)

    def origin(self, start: int, item: int) -> Origin:
        """Return the origin of an item that starts at this index of a sequence."""
        return Origin(start, item, Place(self.path, item + 1))

    def read(self, sequence: int, first: int, count: int) -> Int64:
        """Return the ids of an item starting at index `first`; raise FormatError for ids outside the vocabulary."""
        kind = self.index.kind
        offset = int(self.index.places[sequence]) + first * kind.itemsize
        data = self._file.read(offset, count * kind.itemsize, "ids")
        ids = np.frombuffer(data, kind).astype(np.int64)
        require_ids(ids, self._vocab_size, self.path, sequence)
        return ids


class ItemRows(IdRows):
    """Items in their order; training restarts after the last one."""

    def __init__(self, shape: RowShape, sequences: Sequences, wraps: bool) -> None:
        super().__init__(shape)
        self._sequences, self._wraps = sequences, wraps

    @property
    def rows(self) -> int:
        return int(self._sequences.index.sizes.size)

    def batches(self, epochs: int) -> int:
        return epochs * self.rows // self.shape.batch_size

    def ids(self, sample: int) -> Int64 | None:
        if sample >= self.rows and not self._wraps:
            return None
        return self._sequences.read(sample % self.rows, 0, self.shape.seq_len + 1)

    def documents(self, sample: int) -> list[Origin]:
        """Return the item of a sample."""
        return [self._sequences.origin(0, sample % self.rows)]


class WindowRows(IdRows):
    """Sequences from documents by the maps; training restarts after the last one."""

    def __init__(
        self, shape: RowShape, sequences: Sequences, found: maps.Maps, epochs: int, wraps: bool
    ) -> None:
        super().__init__(shape)
        self._sequences, self._maps, self.passes, self._wraps = sequences, found, epochs, wraps

    @property
    def rows(self) -> int:
        return self._maps.windows

    def batches(self, epochs: int) -> int:
        return epochs * self.rows // self.passes // self.shape.batch_size

    def ids(self, sample: int) -> Int64 | None:
        if sample >= self.rows and not self._wraps:
            return None
        return np.concatenate([self._sequences.read(*piece) for piece in self._pieces(sample)])

    def documents(self, sample: int) -> list[Origin]:
        """Return the items of a sample."""
        pieces = self._pieces(sample)
        starts = itertools.accumulate((count for _, _, count in pieces), initial=0)
        return [
            self._sequences.origin(start, item) for start, (item, _, _) in zip(starts, pieces, strict=False)
        ]

    def _pieces(self, sample: int) -> list[tuple[int, int, int]]:
        """Return (item, first id, number of ids) of each part of a sample."""
        sizes = self._sequences.index.sizes
        return list(self._maps.pieces(sample % self.rows, sizes, self.shape.seq_len))


@dataclass(frozen=True)
class MegatronData(IdData):
    """An indexed data set for training, and another one or the same for validation."""

    train: Sequences | None = None
    valid: Sequences | None = None
    samples: int = 0
    progress: Progress | None = None  # None prints to the terminal

    def rows(self, split: Split, shape: RowShape) -> IdRows:
        sequences = self.train if split == "train" else self.valid
        assert sequences is not None
        sequences.reopen()
        training = split == "train"
        made: IdRows
        if _in_order(sequences.index, shape.seq_len):
            made = ItemRows(shape, sequences, training)
        else:
            made = self._windows(sequences, split, shape)
        if training:
            require_batch(made.rows, shape, self.config)
        return made

    def _windows(self, sequences: Sequences, split: Split, shape: RowShape) -> WindowRows:
        training = split == "train"
        paths = maps.beside(sequences.path, split, shape.seq_len, shape.seed)
        shuffled = self.config.data.shuffle != "off"
        chosen = self._chosen(sequences, split)
        tokens = int(sequences.index.sizes[chosen].sum(dtype=np.int64))
        if paths is not None and shuffled:
            found, epochs = maps.read(paths, sequences.index, shape.seq_len), 1
        elif training and shuffled:
            epochs = self.config.data.epochs or maps.epochs_for(self.samples, tokens, shape.seq_len)
            root = _root(self.config)
            told = self.progress or ConsoleProgress()
            found = maps.built(sequences.index.sizes, chosen, epochs, shape.seq_len, shape.seed, root, told)
        else:
            found, epochs = maps.in_order(sequences.index.sizes, chosen, shape.seq_len), 1
        if not found.windows:
            raise UserError(
                f"[data.path] expected documents of more than {shape.seq_len} ids together for {split}, got {tokens} "
                f"ids in {sequences.path}; set data.eval_path, or a smaller train.seq_len"
            )
        return WindowRows(shape, sequences, found, epochs, training)

    def _chosen(self, sequences: Sequences, split: Split) -> Int64:
        """Return the item indices of a split."""
        count = sequences.index.sizes.size
        return np.arange(count) if self.train is not self.valid else _of_split(split, count)

    def stored_maps(self, shape: RowShape) -> maps.MapSizes | None:
        """Return the sizes of the training maps that a start writes to the cache folder; None if it writes none."""
        assert self.train is not None
        sizes, given = (
            self.train.index.sizes,
            maps.beside(self.train.path, "train", shape.seq_len, shape.seed),
        )
        if (
            self.config.data.shuffle == "off"
            or given is not None
            or _in_order(self.train.index, shape.seq_len)
        ):
            return None
        chosen = self._chosen(self.train, "train")
        tokens = int(sizes[chosen].sum(dtype=np.int64))
        epochs = self.config.data.epochs or maps.epochs_for(self.samples, tokens, shape.seq_len)
        found = maps.map_sizes(chosen.size, tokens, epochs, shape.seq_len)
        return found if found.stored else None


def plan_note(config: Config, shape: RowShape) -> str:
    """Return the line of a plan about the maps that a start builds.

    It is empty if the start builds none, or if this machine does not have the data set.
    """
    try:
        sizes = None if is_url(config.data.path) else prepare(config, Preparation()).stored_maps(shape)
    except (UserError, FormatError):  # the start reports the error
        return ""
    if sizes is None:
        return ""
    return (
        f"  maps          {bytes_text(sizes.all)} in {_root(config)}, built once by the first start, which needs "
        f"{bytes_text(max(sizes.documents, sizes.order))} of memory for it"
    )


def _root(config: Config) -> Path:
    return cache_root(config)


def _in_order(index: Index, seq_len: int) -> bool:
    return bool(index.sizes.size) and bool((index.sizes == seq_len + 1).all())


def _of_split(split: Split, count: int) -> Int64:
    """Return the indices of a split's documents, for one data set of `count` documents that serves both splits."""
    first, second, last = _rounded_ends(count)
    left = last - count  # as in GPT-NeoX, the rounding error shifts all ends
    return np.arange(first - left) if split == "train" else np.arange(first - left, second - left)


def _rounded_ends(count: int) -> tuple[int, int, int]:
    """Return the ends of training, validation and test, with each size rounded separately."""
    first, second, last = itertools.accumulate(round(part / 1000 * count) for part in _PARTS_OF_1000)
    return first, second, last


def prepare(config: Config, how: Preparation) -> MegatronData:
    """Return the data sets of data.path and data.eval_path."""
    vocab_size = vocabulary_of(config)
    found, settings = sources_of(config.data, resumed=how.fingerprint is not None), config.data
    if found.format.name != "megatron" or len(found.train) != 1 or len(found.valid) > 1:
        raise UserError(
            f"[data.path] expected one NAME.bin with NAME.idx for data.pipeline=megatron, got {len(found.train)} files "
            f"of {found.format.name}; data.pipeline=ids reads a .bin without an index"
        )
    train = Sequences(found.train[0], vocab_size)
    valid = Sequences(found.valid[0], vocab_size) if found.valid else train
    if valid is train and _in_order(train.index, config.train.seq_len):
        require_validation((), config)
    samples = config.train.steps * config.train.batch_size
    tokens = int(train.index.sizes.sum(dtype=np.int64))
    rule: JsonObject = {"megatron": 1, "shuffle": settings.shuffle, "epochs": settings.epochs}
    if not _in_order(train.index, config.train.seq_len):
        rule["of_steps"] = settings.epochs or maps.epochs_for(samples, tokens, config.train.seq_len)
        if valid is train and _rounded_ends(train.index.sizes.size)[-1] != train.index.sizes.size:
            rule["split"] = "ends moved"  # earlier versions had other sequences for these counts
    pairs = [path for one in (train, valid) for path in pair_of(one.path)]
    fingerprint = fingerprint_of(pairs, rule, how.fingerprint)
    counts = (int(train.index.sizes.size), int(valid.index.sizes.size) if found.valid else 0)
    lines = (
        f"pipeline    megatron: {train.path}, ids of {train.index.kind}",
        f"train       {counts[0]:,} sequences, {tokens:,} ids",
        f"valid       {f'{counts[1]:,} sequences' if found.valid else '30 of 1000 documents'}",
        *found.lines(),
    )
    return MegatronData(
        config,
        fingerprint,
        tokens,
        counts,
        lines,
        train=train,
        valid=valid,
        samples=samples,
        progress=how.progress,
    )


PIPELINE = Pipeline("megatron", (), prepare, plan_note)
