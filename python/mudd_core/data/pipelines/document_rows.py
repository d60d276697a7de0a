"""The pipeline `rows`: one document a row, in order, as mu-Transformer reads them.

A row is the tokenizer's template of a document, cut to T and padded with eos; eos counts once. Training wraps around.
Without eval files the first 100 batches of documents validate, and the next 100 are left for a test.
"""

from __future__ import annotations

import math
from typing import ClassVar

from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.data.corpus import Split
from mudd_core.data.pipelines.core_rows import CoreRows, token_file
from mudd_core.data.pipelines.documents import Frame, tail_of
from mudd_core.data.pipelines.documents_data import DocumentData, Preparation, documents_of
from mudd_core.data.pipelines.pipeline import RowShape

PARTS: tuple[str, ...] = ()
HELD_BATCHES = 100


class RowsData(DocumentData):
    """Documents as the tokenizer's template has them."""

    frame: ClassVar[Frame] = "template"
    hold_out: ClassVar[bool] = False

    def rows(self, split: Split, shape: RowShape) -> CoreRows:
        from mudd_core import _core

        stored, first, count = self._range(split, shape)
        tokenizer = self.cache.tokenizer
        eos = tokenizer.eos_id
        tail = min(tail_of(tokenizer, self.frame), shape.seq_len - 1)
        core = _core.document_rows(
            token_file(self.cache, stored),
            _core.RowRule("behind_bos", pad_id=eos, bos_id=tokenizer.bos_id or 0, stop_id=eos),
            shape.seq_len,
            starts=self.cache.document_starts(stored), longest=shape.seq_len, tail=tail,
            first=first, count=count, wraps=split == "train",
        )  # fmt: skip
        return CoreRows(core, shape, self.cache)

    def _range(self, split: Split, shape: RowShape) -> tuple[Split, int, int]:
        """(stored split, first document, documents) of a split: a multiple of the batch and of data.buffer."""
        held = HELD_BATCHES * shape.batch_size
        unit = math.lcm(shape.batch_size, self.config.data.buffer or 1)
        if self.cache.valid.documents:
            stored, first = split, 0
            count = self.cache.place(split).documents
        else:
            self.require_documents("train", 2 * held + unit, "two times 100 batches are held out")
            stored, first = "train", 0 if split == "valid" else 2 * held
            count = held if split == "valid" else self.cache.train.documents - first
        if count < unit:
            raise UserError(
                f"[data.path] expected at least {unit:,} documents (a batch, and data.buffer), got {count:,} for "
                f"{split}; use more data, a smaller train.batch_size or data.buffer"
            )
        return stored, first, count // unit * unit


def prepare(config: Config, how: Preparation) -> RowsData:
    """Documents as the tokenizer's template has them, tokenized once."""
    return RowsData(config, documents_of(config, how, RowsData.frame, RowsData.hold_out))
