"""Sequences with the probabilities of a teacher: the rows of the pipelines text and chat, and a teacher file.

A teacher's probabilities belong to a place in the data and not to a step, so batch size, order and epoch may differ.
With the pipeline chat the place is an example, named by a hash of its ids. With the pipeline text it is a position in
the ids of a split.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.types import Array, Int32
from mudd_core.data.batcher import Batcher
from mudd_core.data.cache.teacher_file import Facts, Key, TeacherFile
from mudd_core.data.documents import origins
from mudd_core.data.pipelines.chat_data import ChatData
from mudd_core.data.pipelines.text import TextData
from mudd_core.data.rows import TEACHER_PARTS, Prepared, Rows, RowShape
from mudd_core.data.sources.corpus import Split

PLACE = "[loss.teacher]"
SPLITS: tuple[Split, Split] = ("train", "valid")


@dataclass(frozen=True)
class Origin:
    """The data of a teacher file. pipeline: text or chat. tokenizer, data: identify the tokenizer and the ids."""

    pipeline: str
    tokenizer: str
    data: str
    vocab_size: int


def origin_of(data: Prepared, place: str) -> Origin:
    """Return the origin; raise UserError for data of another pipeline."""
    if isinstance(data, ChatData):
        return Origin("chat", str(data.kept.facts.get("tokenizer")), data.seal, data.vocab_size)
    if isinstance(data, TextData):
        cache = data.cache
        return Origin("text", cache.tokenizer_name, cache.content_hash, data.vocab_size)
    raise UserError(
        f"{place}: a teacher needs data.pipeline=text or chat without a stream (data.cache=full), got other data"
    )


@dataclass(frozen=True)
class ExamplePart:
    """An example of the pipeline chat in a packed sequence."""

    key: Key
    row: int
    at: slice


def example_parts(arrays: Mapping[str, Array]) -> Iterator[ExamplePart]:
    """Yield the examples with a loss in packed sequences; a hash of inputs and targets names each of them."""
    for row, segments in enumerate(arrays["segments"]):
        for segment in range(1, int(segments.max(initial=0)) + 1):
            found = np.flatnonzero(segments == segment)
            at = slice(int(found[0]), int(found[-1]) + 1)
            targets = arrays["targets"][row, at]
            if not (targets >= 0).any():
                continue
            content = arrays["inputs"][row, at].astype("<i4").tobytes() + targets.astype("<i4").tobytes()
            digest = hashlib.blake2b(content, digest_size=16).digest()
            yield ExamplePart(
                (int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")), row, at
            )


def ordered_rows(data: Prepared, split: Split, shape: RowShape) -> Rows:
    """Return the sequences of a split that a teacher reads: each example, or each position of the text, once."""
    if isinstance(data, TextData):
        return Batcher(data.cache, split, shape.seq_len, in_order=True)
    return data.rows(split, shape)


def window_key(split: Split, first: int) -> Key:
    """Return the name of a window of the text. first: the position of its first input in the split."""
    return SPLITS.index(split), first


class TaughtRows:
    """The sequences of a run, with the teacher's probabilities for each target with a loss."""

    core = None

    def __init__(self, rows: Rows, file: TeacherFile, split: Split) -> None:
        self.of, self._file, self._split = rows, file, split
        self.parts = (*rows.parts, *TEACHER_PARTS)

    @property
    def rows(self) -> int:
        """The number of sequences in an epoch, or in the validation split."""
        return self.of.rows

    def batches(self, epochs: int) -> int | None:
        """Return the number of whole batches in `epochs` epochs."""
        return self.of.batches(epochs)

    def origins(self, samples: Sequence[int], *, files: bool) -> list[list[origins.Origin]]:
        """Return the documents of each sample, as Located.origins does."""
        return origins.origins_of(self.of, samples, files=files)

    def arrays(self, first_sample: int, n_samples: int) -> dict[str, Array]:
        """Return the arrays of the sequences, and TEACHER_PARTS [n_samples, T, k]; zeros at ignored targets."""
        arrays = dict(self.of.arrays(first_sample, n_samples))
        shape = (*arrays["inputs"].shape, self._file.facts.kept)
        ids, log_probs = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        if self._file.facts.pipeline == "chat":
            self._fill_examples(arrays, ids, log_probs)
        else:
            self._fill_windows(arrays["targets"], first_sample, ids, log_probs)
        return {**arrays, TEACHER_PARTS[0]: ids, TEACHER_PARTS[1]: log_probs}

    def _fill_examples(self, arrays: Mapping[str, Array], ids: Array, log_probs: Array) -> None:
        for part in example_parts(arrays):
            if part.key not in self._file:
                raise UserError(_missing(self._file, 1))
            block = self._file.block(part.key)
            counted = np.flatnonzero(arrays["targets"][part.row, part.at] >= 0) + part.at.start
            ids[part.row, counted], log_probs[part.row, counted] = block.ids, block.log_probs

    def _fill_windows(self, targets: Int32, first_sample: int, ids: Array, log_probs: Array) -> None:
        core, length = self.of.core, self._file.facts.seq_len
        assert isinstance(core, _core.Batcher)
        for row in range(len(targets)):
            begin = core.start_of(first_sample + row)
            end = begin + int((targets[row] >= 0).sum())
            for window in range(begin // length * length, end, length):
                block = self._file.block(window_key(self._split, window))
                low, high = max(begin, window), min(end, window + length)
                here, there = slice(low - begin, high - begin), slice(low - window, high - window)
                ids[row, here], log_probs[row, here] = block.ids[there], block.log_probs[there]


def taught(rows: Rows, file: TeacherFile | None, split: Split) -> Rows:
    """Return the sequences with the probabilities of a teacher file; unchanged for None."""
    return rows if file is None else TaughtRows(rows, file, split)


def require_same_data(file: TeacherFile, data: Prepared, shape: RowShape) -> None:
    """Raise UserError if a teacher file has another tokenizer or other data than a run."""
    ours, theirs = origin_of(data, PLACE), file.facts
    if ours.pipeline != theirs.pipeline:
        raise UserError(
            f"{PLACE} expected a teacher of data.pipeline={ours.pipeline}, got {file.path} of {theirs.pipeline}"
        )
    if ours.tokenizer != theirs.tokenizer:
        raise UserError(
            f"{PLACE} expected a teacher with the tokenizer of the run ({ours.tokenizer[:20]}), got {file.path} with "
            f"another tokenizer ({theirs.tokenizer[:20]}); distil from a model with the same tokenizer"
        )
    if ours.pipeline == "text" and (ours.data != theirs.data or shape.seq_len != theirs.seq_len):
        what = "other data" if ours.data != theirs.data else f"train.seq_len={theirs.seq_len}"
        raise UserError(
            f"{PLACE} expected a teacher of the data of the run with train.seq_len={shape.seq_len}, got {file.path} "
            f"of {what}; write it again with the command teach"
        )
    if ours.pipeline == "chat" and (ours.data != theirs.data or shape.seq_len != theirs.seq_len):
        _require_examples(file, data, shape)


def _require_examples(file: TeacherFile, data: Prepared, shape: RowShape) -> None:
    missing = 0
    for split in SPLITS:
        rows = data.rows(split, shape)
        for sample in range(rows.rows):
            missing += sum(part.key not in file for part in example_parts(rows.arrays(sample, 1)))
    if missing:
        raise UserError(_missing(file, missing))


def _missing(file: TeacherFile, count: int) -> str:
    return (
        f"{PLACE} {file.path} lacks {count:,} examples of the data: it was written for other data or for a smaller "
        f"train.seq_len ({file.facts.seq_len}); write it again with the command teach"
    )


def facts_of(origin: Origin, base: str, kept: int, seq_len: int) -> Facts:
    """Return the facts of a new teacher file. base: the hash of the teacher's weights."""
    return Facts(origin.pipeline, base, origin.tokenizer, origin.data, kept, seq_len, origin.vocab_size)
