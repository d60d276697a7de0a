"""The pipeline `rows`: one document in each sequence, in order, as mu-Transformer reads them.

A sequence is the tokenizer's template of a document, truncated to T and padded with EOS; only the first EOS has a loss.
Training wraps around. Without eval files the first 100 batches of documents validate, and the next 100 are for a test.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import Int32
from mudd_core.config import Config
from mudd_core.data.cache.token_cache import TokenCache
from mudd_core.data.documents.source import Frame, tail_of
from mudd_core.data.pipelines.core_rows import CoreRows, filled_rows, token_file
from mudd_core.data.pipelines.document_data import DocumentData, whole_or_streamed
from mudd_core.data.rows import Cursor, Pipeline, Preparation, RowShape
from mudd_core.data.sources.corpus import Split
from mudd_core.data.streaming.data import StreamData
from mudd_core.data.streaming.documents_stream import DocumentStream
from mudd_core.data.streaming.rows import made
from mudd_core.data.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from mudd_core import _core

PARTS: tuple[str, ...] = ()
HELD_BATCHES = 100


class RowsData(DocumentData):
    """Documents with the ids that the tokenizer's template adds."""

    frame: ClassVar[Frame] = "template"
    hold_out: ClassVar[bool] = False

    def rows(self, split: Split, shape: RowShape) -> CoreRows:
        stored, first, count = self._range(split, shape)
        return self._rows(stored, shape, first, count, wraps=split == "train")

    def _rows(self, stored: Split, shape: RowShape, first: int, count: int, wraps: bool) -> CoreRows:
        from mudd_core import _core

        tokenizer = self.cache.tokenizer
        core = _core.document_rows(
            token_file(self.cache, stored),
            _rule(tokenizer),
            shape.seq_len,
            starts=self.cache.document_starts(stored),
            longest=shape.seq_len,
            tail=_tail(tokenizer, shape),
            first=first,
            count=count,
            wraps=wraps,
        )
        if not wraps:
            return CoreRows(core, shape, self.cache, stored, self.places)
        unit = _unit(self.config, shape)
        return DocumentRows(core, shape, self.cache, stored, self.places, self.file_ends, first, unit)

    def test_rows(self, shape: RowShape) -> CoreRows:
        """Return the documents after the validation split; raise UserError if there are validation files."""
        if self.cache.valid.documents:
            raise no_test()
        held = _held(self.config, shape)
        self.require_documents("train", 2 * held, "100 batches are held out for validation and 100 for test")
        return self.cut("train", shape, held, held)

    def cut(self, stored: Split, shape: RowShape, first: int, count: int) -> CoreRows:
        """Return `count` consecutive sequences, starting at a stored document."""
        unit = _held_unit(self.config, shape)
        count = count // unit * unit
        return self._rows(stored, shape, first, count, wraps=False)

    def _range(self, split: Split, shape: RowShape) -> tuple[Split, int, int]:
        """Return (stored split, first document, count); the count is a multiple of the batch and of data.buffer."""
        held, unit = _held(self.config, shape), _unit(self.config, shape)
        if self.cache.valid.documents:
            stored, first = split, 0
            count = self.cache.place(split).documents
        else:
            self.require_documents(
                "train", 2 * held + unit, "100 batches are held out for validation and 100 for test"
            )
            stored, first = "train", 0 if split == "valid" else 2 * held
            count = held if split == "valid" else self.cache.train.documents - first
        unit = _held_unit(self.config, shape) if split == "valid" else unit
        if count < unit:
            raise UserError(
                f"[data.path] expected at least {unit:,} documents (a batch, and data.buffer), got {count:,} for "
                f"{split}; use more data, a smaller train.batch_size or data.buffer"
            )
        return stored, first, count // unit * unit


@dataclass(frozen=True)
class DocumentRows(CoreRows):
    """Training sequences. first: the number of held-out documents before them. unit: as in DocumentStream."""

    file_ends: Callable[[], list[int]]
    first: int
    unit: int

    def cursor(self, batch: int) -> Cursor | None:
        """Return the position for a stream that continues from this cache; None if the cache has no list of files."""
        epoch, at = divmod(batch * self.shape.batch_size, self.rows)
        begin, taken = at // self.unit * self.unit, at % self.unit
        file, number, held = 0, 0, self.first
        if begin:
            try:
                ends = self.file_ends()
            except FormatError:
                return None
            file, held = bisect_right(ends, self.first + begin) - 1, 0
            number = self.first + begin - ends[file]
        return made("rows", batch, epoch=epoch, file=file, number=number, held=held, taken=taken)

    def go_on(self, cursor: object) -> None:
        """Do nothing: a cache finds any position directly."""


class RowsStreamed(StreamData):
    """The same data, tokenized while the run trains."""

    parts = PARTS

    def opened(self, shape: RowShape, cursor: Cursor | None) -> DocumentStream:
        tokenizer = self.tokenizer
        processes = self.processes("all", longest=shape.seq_len, tail=_tail(tokenizer, shape))
        rule = _rule(tokenizer)

        def fill(rows: list[list[Int32]]) -> dict[str, Int32]:
            return filled_rows(rows, rule, PARTS, shape.seq_len, self.vocab_size)

        held, epochs = 2 * self.held_first(shape), self.config.data.epochs
        unit = _unit(self.config, shape)
        return DocumentStream(processes, fill, shape.batch_size, unit, held, epochs, cursor)

    def held_first(self, shape: RowShape) -> int:
        return 0 if self.source.valid.files else _held(self.config, shape)

    def valid_rows(self, cache: TokenCache, shape: RowShape) -> CoreRows:
        return RowsData(self.config, cache).rows("valid", shape)

    def test_rows(self, shape: RowShape) -> CoreRows:
        """Return the test sequences, as RowsData does."""
        if self.source.valid.files:
            raise no_test()
        held = _held(self.config, shape)
        data = RowsData(self.config, self.validation(2 * held))
        data.require_documents("valid", 2 * held, "100 batches are held out for validation and 100 for test")
        return data.cut("valid", shape, held, held)


def no_test() -> UserError:
    """Return the error for a request for a test split that the data do not have."""
    return UserError(
        "[data.eval_path] --split=test: expected a data.dataset with the splits train, validation "
        "and test, or no validation files, got validation files only; to measure on other files, "
        "start a run with data.eval_path=FILES"
    )


def _held_batch(config: Config, shape: RowShape) -> int:
    """Return the number of documents per batch in the held-out splits."""
    return config.data.held_batch or shape.batch_size


def _held(config: Config, shape: RowShape) -> int:
    """Return the number of documents that are held out for validation; the test split has as many."""
    return HELD_BATCHES * _held_batch(config, shape)


def _held_unit(config: Config, shape: RowShape) -> int:
    """Return the number that the size of a held-out split is a multiple of, in documents."""
    return math.lcm(_held_batch(config, shape), config.data.buffer or 1)


def _unit(config: Config, shape: RowShape) -> int:
    """Return the number that the size of the training split is a multiple of, in documents."""
    return math.lcm(shape.batch_size, config.data.buffer or 1)


def _tail(tokenizer: Tokenizer, shape: RowShape) -> int:
    return min(tail_of(tokenizer, RowsData.frame), shape.seq_len - 1)


def _rule(tokenizer: Tokenizer) -> _core.RowRule:
    from mudd_core import _core

    eos = tokenizer.eos_id
    return _core.RowRule("behind_bos", pad_id=eos, bos_id=tokenizer.bos_id or 0, stop_id=eos)


def prepare(config: Config, how: Preparation) -> DocumentData | StreamData:
    """Prepare documents with the ids of the tokenizer's template, tokenized once."""
    return whole_or_streamed(config, how, RowsData, RowsStreamed)


PIPELINE = Pipeline("rows", PARTS, prepare)
