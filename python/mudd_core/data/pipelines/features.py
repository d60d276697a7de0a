"""The pipeline `features`: sequences of `input_ids`, `attention_mask` and `labels`, unchanged from the files.

Labels are never shifted again, and a negative label has no loss. The order is the order of the files; an incomplete
batch at the end of an epoch or of a validation is dropped. The cache folder stores the sequences as one int32 array.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.format import write_array_header_1_0

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import Int32, JsonObject
from mudd_core.config import Config, DataConfig
from mudd_core.config.pipelines import PROTOCOLS
from mudd_core.config.schema import protocol_of, validation_batch
from mudd_core.data.documents.origins import FindPlaces, Origin, Place, with_places
from mudd_core.data.formats import only
from mudd_core.data.formats.bounded import BoundedFile
from mudd_core.data.formats.format import BadRecords, Format, Record, dropped_note, ids_of, require_ids
from mudd_core.data.formats.npy import header_of
from mudd_core.data.pipelines.ids_data import (
    IdData,
    fingerprint_of,
    require_batch,
    require_validation,
    vocabulary_of,
)
from mudd_core.data.rows import Pipeline, Preparation, RowShape
from mudd_core.data.sources.access import local_root
from mudd_core.data.sources.corpus import Split
from mudd_core.data.sources.notes import drop_notes, keep_notes, note_of, require_unchanged
from mudd_core.data.sources.splits import Sources, chosen_files, sources_of

PARTS = ("key_mask",)
_DROPPED = "dropped.txt"  # the note about bad records, if any
_COLUMNS = ("input_ids", "attention_mask", "labels")


class FeatureRows:
    """The sequences of a stored array [n, 3, T], read in place."""

    core = None
    parts = PARTS

    def __init__(self, shape: RowShape, path: Path, wraps: bool, places: FindPlaces) -> None:
        """Open the array. places: finds the files of training sequences by their numbers."""
        self.shape, self._wraps, self._places = shape, wraps, places
        self._file = BoundedFile(path, reads_again=True)
        head = header_of(self._file)
        self._offset, self._count = head.offset, head.shape[0]
        if head.shape[2] != shape.seq_len:
            raise UserError(
                f"[config] train.seq_len: expected the {head.shape[2]} ids of the rows, got {shape.seq_len}"
            )

    @property
    def rows(self) -> int:
        """The number of sequences in a validation; in training, the sequences in whole batches of an epoch."""
        return self._count // self.shape.batch_size * self.shape.batch_size if self._wraps else self._count

    def batches(self, epochs: int) -> int:
        return epochs * (self.rows // self.shape.batch_size)

    def origins(self, samples: Sequence[int], *, files: bool) -> list[list[Origin]]:
        """Return the record of each sample, as Located.origins does."""
        found = [[Origin(0, sample % self.rows)] for sample in samples]
        return with_places(found, self._places if files else None)

    def arrays(self, first_sample: int, n_samples: int) -> dict[str, Int32]:
        out = np.zeros((n_samples, 3, self.shape.seq_len), np.int32)
        out[:, 2] = -1
        out[:, 1] = 1
        size = out[0].nbytes
        for i in range(n_samples):
            sample = first_sample + i
            if sample < self.rows or self._wraps:
                data = self._file.read(self._offset + sample % self.rows * size, size, "a row")
                out[i] = np.frombuffer(data, "<i4").reshape(3, -1)
        names = ("inputs", "key_mask", "targets")
        return {name: np.ascontiguousarray(out[:, part]) for part, name in enumerate(names)}


def row_length(data: DataConfig) -> int:
    """Return the length of the first sequence in data.path; 0 if no file on this machine has one."""
    try:
        files = chosen_files(data, "path").files if data.path and "://" not in data.path else ()
        first = next(only(files, data.format).records(files[0], _COLUMNS), None) if files else None
    except (UserError, FormatError):  # a later read of the sequences reports the error
        return 0
    return 0 if first is None else len(first["input_ids"])


@dataclass(frozen=True)
class FeatureData(IdData):
    """Sequences that are ready to be read. folder: the folder of the stored arrays."""

    folder: Path = Path()

    def rows(self, split: Split, shape: RowShape) -> FeatureRows:
        made = FeatureRows(shape, self.folder / f"{split}.npy", split == "train", self._places)
        if split == "train":
            require_batch(made.rows, shape, self.config)
        else:
            self._require_validated(made.rows)
        return made

    def _places(self, numbers: Collection[int]) -> dict[int, Place]:
        """Return the places of training records by their numbers; all files are read to count their records."""
        if self.config.data.bad_records == "drop":
            return {}
        found, first = sources_of(self.config.data, resumed=True), 0
        places: dict[int, Place] = {}
        for path in found.train:
            end = first + sum(1 for _ in found.format.records(path, ("input_ids",)))
            places |= {one: Place(path, one - first + 1) for one in numbers if first <= one < end}
            first = end
        return places

    def _require_validated(self, rows: int) -> None:
        """Raise UserError if there are fewer sequences than a validation needs."""
        protocol, batch = protocol_of(self.config), validation_batch(self.config)
        if rows and (rows >= batch or PROTOCOLS[protocol].last != "dropped"):
            return
        least, cure = (
            (batch, "lower eval.batch_size, or set eval.protocol=counted") if rows else (1, "add rows")
        )
        raise UserError(
            f"[data.eval_path] eval.protocol={protocol}: expected at least {least} rows for validation, got {rows}; "
            f"{cure}"
        )


def _read(path: Path, one: Format, vocab_size: int, bad: BadRecords) -> Iterator[Int32]:
    """Yield the sequences of a file as [3, T]."""
    for number, record in enumerate(one.records(path, _COLUMNS, bad)):
        try:
            row = _row(record, path, number, vocab_size)
        except FormatError as error:
            bad.found(error)
        else:
            yield row


def _row(record: Record, path: Path, number: int, vocab_size: int) -> Int32:
    """Return one sequence [3, T]. number: index of the record, for messages."""
    ids = ids_of(record["input_ids"], path, number, "input_ids")
    labels = ids_of(record["labels"], path, number, "labels")
    mask = record["attention_mask"]
    if not isinstance(mask, np.ndarray) or not ids.size == labels.size == mask.size:
        sizes = [len(record[name]) for name in _COLUMNS]
        raise FormatError(str(path), 0, f"record {number}: expected lists of one length, got {sizes}")
    require_ids(ids, vocab_size, path, number)
    require_ids(labels, vocab_size, path, number, lowest=-(1 << 31))
    return np.stack([ids, mask != 0, np.where(labels < 0, -1, labels)]).astype(np.int32)


def _keep(
    files: tuple[Path, ...], one: Format, vocab_size: int, target: Path, how: Preparation, bad: BadRecords
) -> int:
    """Write the sequences of files to an array file, which is renamed when complete; return the number of sequences."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    count, length = 0, -1
    try:
        with temporary.open("wb") as out:
            out.write(bytes(128))
            for done, path in enumerate(files):
                for row in _read(path, one, vocab_size, bad):
                    length = row.shape[1] if length < 0 else length
                    if row.shape[1] != length:
                        raise FormatError(
                            str(path), 0, f"expected rows of {length} ids like the first, got {row.shape[1]}"
                        )
                    out.write(row.astype("<i4").tobytes())
                    count += 1
                if how.progress is not None:
                    how.progress("reading", done + 1, len(files))
            out.seek(0)
            write_array_header_1_0(
                out, {"descr": "<i4", "fortran_order": False, "shape": (count, 3, max(length, 0))}
            )
            if out.tell() != 128:
                raise RuntimeError(f"[features] the head of an array has {out.tell()} bytes")
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def _build(
    root: Path, folder: Path, found: Sources, vocab_size: int, how: Preparation, bad: BadRecords
) -> None:
    """Store the sequences of both splits. Raise FormatError and store nothing if a file is damaged or was edited."""
    if how.before_build is not None:
        how.before_build()
    folder.mkdir(parents=True, exist_ok=True)
    files = (*found.train, *found.valid)
    try:
        keep_notes(root, folder.name, [note_of(path) for path in files])
        for split, chosen in (("train", found.train), ("valid", found.valid)):
            target = folder / f"{split}.npy"
            _keep(chosen, found.format, vocab_size, target, how, bad)
            with target.open("rb") as kept:
                digest = hashlib.file_digest(kept, "sha256")
            if split == "valid" and (note := dropped_note(bad.count, bad.first)):
                (folder / _DROPPED).write_text(note + "\n", encoding="utf-8")
            target.with_suffix(".sha256").write_text(digest.hexdigest() + "\n")
        require_unchanged(root, folder.name, files)
    except (FormatError, UserError):
        shutil.rmtree(folder, ignore_errors=True)
        drop_notes(root, folder.name)
        raise


def _checked(path: Path) -> int:
    """Return the number of sequences in a stored array; raise FormatError if it has changed since it was written."""
    with BoundedFile(path) as file:
        count = header_of(file).shape[0]
        digest = file.sha256()
    seal = path.with_suffix(".sha256")
    if not seal.is_file() or seal.read_text().strip() != digest.hex():
        raise FormatError(
            str(path), 0, f"the stored sequences do not match their checksum; remove {path.parent}"
        )
    return count


def _notes(folder: Path) -> list[str]:
    """Return the note about the bad records that the build of a folder dropped, if there is one."""
    file = folder / _DROPPED
    return [file.read_text(encoding="utf-8").strip()] if file.is_file() else []


def prepare(config: Config, how: Preparation) -> FeatureData:
    """Return the sequences of the files, stored in the cache folder."""
    vocab_size = vocabulary_of(config)
    found = sources_of(config.data, resumed=how.fingerprint is not None)
    require_validation(found.valid, config)
    files = (*found.train, *found.valid)
    bad = BadRecords(config.data.bad_records == "drop")
    rule: JsonObject = {"features": 1, **({"bad_records": "drop"} if bad.drops else {})}
    fingerprint = fingerprint_of(files, rule, how.fingerprint)
    root = local_root(config.data.cache_dir)
    folder = root / f"features-{fingerprint}"
    kept = all((folder / f"{split}.sha256").is_file() for split in ("train", "valid"))
    if how.fingerprint is None and kept:
        require_unchanged(root, folder.name, files)
    if not kept:
        _build(root, folder, found, vocab_size, how, bad)
    counts = [_checked(folder / f"{split}.npy") for split in ("train", "valid")]
    lines = (
        "pipeline    features: sequences of ids, mask and labels",
        f"sequences   {counts[0]:,} for training, {counts[1]:,} for validation",
        *found.lines(),
        *(f"warning     {note}" for note in _notes(folder)),
    )
    tokens = counts[0] * config.train.seq_len
    return FeatureData(config, fingerprint, tokens, (counts[0], counts[1]), lines, folder=folder)


PIPELINE = Pipeline("features", PARTS, prepare)
