"""The pipeline `ids`: sequences of T + 1 ids from files of plain token ids, in the order of the pipeline `text`.

The files form one sequence of ids in the order of their names (formats/tokens.py defines the accepted files). The ids
of records are joined in the cache folder first (joined_ids.py).
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Int32, Int64, JsonObject
from mudd_core.config import Config
from mudd_core.data.documents.origins import Origin, Place
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.format import require_ids
from mudd_core.data.formats.tokens import TokenPlace, place_of
from mudd_core.data.pipelines.ids_data import IdData, fingerprint_of, vocabulary_of
from mudd_core.data.pipelines.joined_ids import joined
from mudd_core.data.rows import Pipeline, Preparation, RowShape
from mudd_core.data.sources.access import local_root
from mudd_core.data.sources.corpus import Split
from mudd_core.data.sources.splits import sources_of

_HELD_OUT = 20  # without validation files, the last 1 / _HELD_OUT of the ids is for validation
_OPEN_FILES = 16
_COLUMN = "input_ids"  # of records, unless data.column names another one


class Ids:
    """The ids of several files as one array, or a part of it, read in place; only a few files are open at a time."""

    def __init__(self, files: Sequence[Path], vocab_size: int, names: Sequence[Path] = ()) -> None:
        """Open the files. names: the files that the user named, if these were built from them."""
        self.files, self._vocab_size = tuple(files), vocab_size
        self._names = tuple(names) or self.files
        self._places = [_place(path, vocab_size) for path in self.files]
        self._ends = np.cumsum([0, *(place.count for place in self._places)], dtype=np.int64)
        self._open: OrderedDict[int, BoundedFile] = OrderedDict()
        self.first, self.count = 0, int(self._ends[-1])

    def cut(self, first: int, count: int) -> Ids:
        """Return the ids [first, first + count) of these ids, without a copy."""
        part = Ids(self.files, self._vocab_size, self._names)
        part.first, part.count = self.first + first, count
        return part

    def kinds(self) -> str:
        """Return the types of the ids, for a message."""
        return ", ".join(sorted({str(place.kind) for place in self._places}))

    def read(self, first: int, count: int) -> Int64:
        """Return `count` ids starting at index `first`; raise FormatError for ids outside the vocabulary."""
        found: list[Int64] = []
        at = self.first + first
        while count > 0:
            number = int(np.searchsorted(self._ends, at, side="right")) - 1
            here = at - int(self._ends[number])
            taken = min(count, self._places[number].count - here)
            ids = self._places[number].read(self._file(number), here, taken)
            require_ids(ids, self._vocab_size, self.files[number], 0)
            found.append(ids)
            at, count = at + taken, count - taken
        return np.concatenate(found)

    def parts(self, first: int, count: int) -> list[Origin]:
        """Return the parts of `count` ids from index `first`, one for each file."""
        found: list[Origin] = []
        begin, end = self.first + first, self.first + first + count
        for number, (low, high) in enumerate(itertools.pairwise(self._ends.tolist())):
            at = max(begin, low)
            if at < min(end, high):
                found.append(Origin(at - begin, None, Place(self._names[number], first_id=at - low)))
        return found

    def reopen(self) -> None:
        """Close all files, so that the next read opens them again. Called after a run has lost one of them."""
        while self._open:
            self._open.popitem()[1].close()

    def _file(self, number: int) -> BoundedFile:
        if number not in self._open:
            self._open[number] = BoundedFile(self.files[number], reads_again=True)
            if len(self._open) > _OPEN_FILES:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(number)
        return self._open[number]


def _place(path: Path, vocab_size: int) -> TokenPlace:
    with BoundedFile(path) as file:
        return place_of(file, vocab_size)


class IdSequences:
    """Sequences of T + 1 ids; consecutive sequences share one id. cpp/mudd/data/batcher.h defines their order."""

    core = None
    parts: tuple[str, ...] = ()

    def __init__(self, ids: Ids, split: Split, shape: RowShape, shuffled: bool) -> None:
        """Raise UserError if there are too few ids for one sequence. shuffled: the training order is a permutation."""
        self._ids, self._trains, self.shape, self._shuffled = ids, split == "train", shape, shuffled
        needed = shape.seq_len + 1 if self._trains else 2
        if ids.count < needed:
            cure = "a smaller train.seq_len" if self._trains else "data.eval_path=FILES"
            raise UserError(
                f"[data.path] expected at least {needed} ids for {split}, got {ids.count}; use more ids, or {cure}"
            )

    @property
    def rows(self) -> int:
        """The number of sequences in an epoch, or in the whole validation."""
        length = self.shape.seq_len
        if not self._trains:
            return (self._ids.count - 2) // length + 1
        return max(1, (self._ids.count - length) // length)

    def batches(self, epochs: int) -> int:
        """Return the number of whole batches in `epochs` epochs."""
        return epochs * self.rows // self.shape.batch_size

    def arrays(self, first_sample: int, n_samples: int) -> dict[str, Int32]:
        """Return inputs and targets [n_samples, T]; a target of -1 has no loss."""
        length = self.shape.seq_len
        inputs = np.zeros((n_samples, length), np.int32)
        targets = np.full((n_samples, length), -1, np.int32)
        for row in range(n_samples):
            start = self._start(first_sample + row)
            count = min(length + 1, self._ids.count - start)
            if count > 1:
                ids = self._ids.read(start, count)
                inputs[row, : count - 1], targets[row, : count - 1] = ids[:-1], ids[1:]
        return {"inputs": inputs, "targets": targets}

    def origins(self, samples: Sequence[int], *, files: bool) -> list[list[Origin]]:
        """Return the part of each file in each sample, as Located.origins does."""
        return [self._ids.parts(self._start(sample), self.shape.seq_len) for sample in samples]

    def _start(self, sample: int) -> int:
        """Return the index of the first id of a sample."""
        from mudd_core import _core

        length, rows, seed = self.shape.seq_len, self.rows, self.shape.seed
        if not self._trains:
            return sample * length
        epoch, at = divmod(sample, rows)
        if not self._shuffled:
            return at * length
        words = _core.philox([epoch, 0, 0, 0], _core.philox_key(seed, "data.offset"))
        offset = (words[1] << 32 | words[0]) % min(length, self._ids.count - rows * length)
        return offset + _core.permute(at, rows, seed, "data.order", epoch) * length


@dataclass(frozen=True)
class TokenIdData(IdData):
    """The ids for training and for validation."""

    train: Ids | None = None
    valid: Ids | None = None

    def rows(self, split: Split, shape: RowShape) -> IdSequences:
        ids = self.train if split == "train" else self.valid
        assert ids is not None
        ids.reopen()
        return IdSequences(ids, split, shape, self.config.data.shuffle != "off")


def prepare(config: Config, how: Preparation) -> TokenIdData:
    """Return the ids of data.path and data.eval_path; without data.eval_path the last twentieth is for validation."""
    vocab_size = vocabulary_of(config)
    found = sources_of(config.data, resumed=how.fingerprint is not None)
    if found.format.name != "tokens" and found.format.holds != "records":
        raise UserError(
            f"[data.path] expected files of token ids (.bin without .idx, .u16, .u32, .npy, or records with "
            f"{_COLUMN}) for data.pipeline=ids, got {found.format.name}"
        )
    rule: JsonObject = {"ids": 1}
    train_files, valid_files = found.train, found.valid
    if found.format.holds == "records":
        rule["column"] = column = _COLUMN if config.data.column == "text" else config.data.column
        root = local_root(config.data.cache_dir)
        train_files, valid_files = (
            joined(some, found.format, column, vocab_size, root, how) for some in (found.train, found.valid)
        )
    fingerprint = fingerprint_of((*found.train, *found.valid), rule, how.fingerprint)
    train = Ids(train_files, vocab_size, found.train)
    if found.valid:
        valid = Ids(valid_files, vocab_size)
    else:
        held = train.count // _HELD_OUT
        valid, train = train.cut(train.count - held, held), train.cut(0, train.count - held)
    lines = (
        f"pipeline    ids: {len(found.train)} files of {train.kinds()}, without tokenizer",
        f"train       {train.count:,} ids",
        f"valid       {valid.count:,} ids{'' if found.valid else ', the last twentieth'}",
        *found.lines(),
    )
    return TokenIdData(config, fingerprint, train.count, (0, 0), lines, train=train, valid=valid)


PIPELINE = Pipeline("ids", (), prepare)
