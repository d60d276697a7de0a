"""The pipeline `pile`: TFRecords of ready ids (`input_ids`), T + 1 in each record, files in groups.

The list of files, sorted by the number after `pile.tfrecord.b`, is repeated and divided into groups of
data.files_per_group. Batches are sequential within a group; the incomplete last batch of a group is dropped. Longer
records are truncated, shorter ones padded with id 0, which has no loss unless data.zero_loss.
"""

from __future__ import annotations

import hashlib
import os
import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.framing import HEADER_BYTES
from mudd_core.base.regular_files import read_bytes, write_file
from mudd_core.base.types import Int64, JsonObject
from mudd_core.config import Config
from mudd_core.config.pipelines import WHOLE_BATCHES
from mudd_core.config.schema import protocol_of, validation_batch
from mudd_core.data.documents.origins import Origin, Place
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.format import BadRecords, dropped_note, ids_of, require_ids
from mudd_core.data.formats.tfrecord import feature_of, offsets, payload_at
from mudd_core.data.pipelines.ids_data import IdData, IdRows, fingerprint_of, require_batch, vocabulary_of
from mudd_core.data.pipelines.pile_order import Groups
from mudd_core.data.rows import Pipeline, Preparation, RowShape
from mudd_core.data.sources.access import local_root
from mudd_core.data.sources.corpus import Split
from mudd_core.data.sources.splits import sources_of

_NUMBER = re.compile(r"pile\.tfrecord\.b(\d+)")
_OPEN_FILES = 16


class RecordFiles:
    """The records of files, by index of the file and of the record."""

    def __init__(self, files: tuple[Path, ...], cache: Path, vocab_size: int, bad: BadRecords) -> None:
        """Find the records. bad: the rule of data.bad_records. If it drops bad records, all records are read once."""
        self.drops = bad.drops
        self.files, self._vocab_size = files, vocab_size
        self._offsets = [record_offsets(path, cache) for path in files]
        if bad.drops:
            self._offsets = [
                self._good(number, found, cache, bad) for number, found in enumerate(self._offsets)
            ]
        self.counts = [int(found.size) for found in self._offsets]
        self._open: dict[int, BoundedFile] = {}

    def _good(self, number: int, every: Int64, cache: Path, bad: BadRecords) -> Int64:
        """Return the offsets of the readable records of a file; count the others."""
        path, seen = self.files[number], {int(at): record for record, at in enumerate(every)}

        def is_good(file: BoundedFile, at: int) -> bool:
            try:
                self._ids_at(file, at, seen[at])
            except FormatError:
                return False
            return True

        good = record_offsets(path, cache, f",drop,{self._vocab_size}", is_good)
        with BoundedFile(path) as file:
            for at in np.setdiff1d(every, good).tolist():
                try:
                    self._ids_at(file, at, seen[at])
                except FormatError as error:
                    bad.found(error)
        return good

    def reopen(self) -> None:
        """Reopen the files at their next read."""
        while self._open:
            self._open.popitem()[1].close()

    def read(self, file: int, record: int) -> Int64:
        """Return `input_ids` of a record; raise FormatError if it has none, or ids outside the vocabulary."""
        if file not in self._open:
            if len(self._open) >= _OPEN_FILES:
                self._open.pop(next(iter(self._open))).close()
            self._open[file] = BoundedFile(self.files[file], reads_again=True)
        return self._ids_at(self._open[file], int(self._offsets[file][record]), record)

    def _ids_at(self, file: BoundedFile, offset: int, record: int) -> Int64:
        value = feature_of(payload_at(file, offset), "input_ids", file.path, offset + HEADER_BYTES, record)
        ids = ids_of(value, file.path, record, "input_ids")
        require_ids(ids, self._vocab_size, file.path, record)
        return ids


class PileRows(IdRows):
    """The sequences of one split."""

    def __init__(
        self,
        shape: RowShape,
        files: RecordFiles,
        groups: Groups | None,
        zero_loss: bool,
        end: int | None = None,
    ) -> None:
        """Create the sequences. groups: the order of the records; None if sequential. end: the number of records in a
        grouped validation.
        """
        super().__init__(shape)
        self._files, self._groups, self._zero_loss, self._end = files, groups, zero_loss, end
        self._ends = list(accumulate(files.counts))

    @property
    def rows(self) -> int:
        if self._end is not None:
            return self._end
        return self._ends[-1] if self._ends else 0

    def batches(self, epochs: int) -> int:
        return self._groups.batches(epochs) if self._groups else 0

    def target_counts(self, targets: Int64) -> npt.NDArray[np.bool_]:
        return targets >= (0 if self._zero_loss else 1)

    def documents(self, sample: int) -> list[Origin]:
        """Return the record of a training sample."""
        if self._groups is None:
            return []
        file, record = self._groups.place(sample)
        number = record + (self._ends[file - 1] if file else 0)
        return [Origin(0, number, Place(self._files.files[file], None if self._files.drops else record + 1))]

    def ids(self, sample: int) -> Int64 | None:
        if self._end is not None and sample >= self._end:
            return None
        if self._groups is not None:
            found = self._files.read(*self._groups.place(sample))
        elif sample < self.rows:
            file = bisect_right(self._ends, sample)
            found = self._files.read(file, sample - (self._ends[file - 1] if file else 0))
        else:
            return None
        row = np.zeros(self.shape.seq_len + 1, np.int64)
        row[: found.size] = found[: row.size]
        return row


@dataclass(frozen=True)
class PileData(IdData):
    """TFRecords that are ready to be read."""

    train: RecordFiles | None = None
    valid: RecordFiles | None = None

    def rows(self, split: Split, shape: RowShape) -> PileRows:
        settings = self.config.data
        files = self.train if split == "train" else self.valid
        assert files is not None
        files.reopen()
        if split == "valid":
            return self._validation_rows(shape, files)
        require_batch(sum(files.counts), shape, self.config)
        groups = Groups(
            files.counts,
            settings.files_per_group,
            shape.batch_size,
            settings.buffer,
            shape.seed,
            settings.epochs,
        )
        if settings.files_per_group and groups.batches(len(files.counts)) == 0:
            raise UserError(
                f"[data.files_per_group] no group of {settings.files_per_group} files has a batch of "
                f"{shape.batch_size}"
            )
        return PileRows(shape, files, groups, settings.zero_loss)

    def _validation_rows(self, shape: RowShape, files: RecordFiles) -> PileRows:
        """Return whole batches of each group of files (perhaps none), or all records with eval.protocol=pile."""
        settings, batch = self.config.data, validation_batch(self.config)
        if not files.counts or protocol_of(self.config) != WHOLE_BATCHES:
            return PileRows(shape, files, None, settings.zero_loss)
        epochs = max(1, settings.epochs) if self.config.eval.max_batches else 1
        groups = Groups(files.counts, settings.files_per_group, batch, 0, shape.seed, epochs)
        return PileRows(shape, files, groups, settings.zero_loss, groups.batches(epochs) * batch)


def in_order(files: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the files sorted by the number after `pile.tfrecord.b`. A file without a number is sorted by its index."""
    numbered = [_NUMBER.search(path.name) for path in files]
    keys = [int(found[1]) if found else at for at, found in enumerate(numbered)]
    return tuple(path for _, path in sorted(zip(keys, files, strict=True), key=lambda pair: pair[0]))


def prepare(config: Config, how: Preparation) -> PileData:
    """Return the records of the files; raise UserError if they are not TFRecords."""
    vocab_size = vocabulary_of(config)
    found = sources_of(config.data, resumed=how.fingerprint is not None)
    if found.format.name != "tfrecord":
        raise UserError(
            f"[data.path] expected TFRecord files for data.pipeline=pile, got {found.format.name}"
        )
    settings = config.data
    if settings.shuffle == "on" and not settings.buffer:
        raise UserError("[data.shuffle] data.pipeline=pile shuffles records by data.buffer; set its size")
    bad = BadRecords(settings.bad_records == "drop")
    rule: JsonObject = {
        "pile": 1,
        "zero_loss": settings.zero_loss,
        "group": settings.files_per_group,
        "buffer": settings.buffer,
    }
    if bad.drops:
        rule["bad_records"] = "drop"
    fingerprint = fingerprint_of((*found.train, *found.valid), rule, how.fingerprint)
    cache = local_root(settings.cache_dir)
    train = RecordFiles(in_order(found.train), cache, vocab_size, bad)
    valid = RecordFiles(found.valid, cache, vocab_size, bad)
    counts = (sum(train.counts), sum(valid.counts))
    if not counts[0] or (found.valid and not counts[1]):
        raise UserError("[data.path] expected records for training and validation, got files without records")
    lines = (
        "pipeline    pile: TFRecords of ids",
        f"train       {len(found.train):,} files, {counts[0]:,} records",
        f"valid       {len(found.valid):,} files, {counts[1]:,} records"
        if found.valid
        else "valid       no files; the run trains without validation",
        *found.lines(),
        *([f"warning     {dropped}"] if (dropped := dropped_note(bad.count, bad.first)) else []),
    )
    tokens = counts[0] * config.train.seq_len
    return PileData(config, fingerprint, tokens, counts, lines, train=train, valid=valid)


PIPELINE = Pipeline("pile", (), prepare)


def record_offsets(
    path: Path, cache: Path, rule: str = "", is_good: Callable[[BoundedFile, int], bool] | None = None
) -> Int64:
    """Return the byte offset of each record. A stored index is rebuilt if it is damaged or if the file has changed.

    is_good: selects the offsets to keep. rule: the settings of is_good, as part of the index's name.
    """
    from mudd_core import _core

    state = path.stat()
    name = (
        os.fsencode(path.absolute())
        + f"\0{state.st_size},{state.st_mtime_ns},{state.st_ctime_ns}{rule}".encode()
    )
    kept = cache / "offsets" / hashlib.sha256(name).hexdigest()[:24]
    if kept.is_file():
        data = read_bytes(kept)
        if len(data) % 8 == 4 and _core.crc32c(data[4:]) == int.from_bytes(data[:4], "little"):
            return np.frombuffer(data, "<i8", offset=4).astype(np.int64)
    with BoundedFile(path) as file:
        kept_offsets = (at for at in offsets(file) if is_good is None or is_good(file, at))
        found = np.fromiter(kept_offsets, np.int64)
    kept.parent.mkdir(parents=True, exist_ok=True)
    data = found.astype("<i8").tobytes()
    write_file(kept, _core.crc32c(data).to_bytes(4, "little") + data)
    return found
