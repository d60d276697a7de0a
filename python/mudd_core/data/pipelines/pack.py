"""The pipeline `pack`: sequences packed first-fit from whole documents, as in TokenFormer's loader.

A document becomes BOS, its first T - 3 ids, and EOS. Validation has one document in each sequence, in order.
"""

from __future__ import annotations

import functools
import hashlib
from typing import ClassVar

from mudd_core.base.errors import UserError
from mudd_core.base.types import Int32
from mudd_core.config import Config
from mudd_core.data.cache.token_cache import TokenCache
from mudd_core.data.documents.source import Frame
from mudd_core.data.pipelines.core_rows import CoreRows, PackedRows, filled_rows, token_file
from mudd_core.data.pipelines.document_data import DocumentData, whole_or_streamed
from mudd_core.data.rows import Cursor, Pipeline, Preparation, Rows, RowShape
from mudd_core.data.sources.corpus import Split
from mudd_core.data.streaming.data import StreamData
from mudd_core.data.streaming.pack_stream import PackStream
from mudd_core.data.streaming.records import Records, find_records

PARTS = ("positions", "segments")


class PackData(DocumentData):
    """Documents between BOS and EOS."""

    frame: ClassVar[Frame] = "ends"
    hold_out: ClassVar[bool] = True

    def rows(self, split: Split, shape: RowShape) -> CoreRows:
        from mudd_core import _core

        _require_length(shape)
        documents = self.require_documents(split, 1, "data.pipeline=pack")
        starts, longest = self.cache.document_starts(split), shape.seq_len - 1
        file = token_file(self.cache, split)
        if split == "valid":
            core = _core.document_rows(
                file,
                _core.RowRule("packed"),
                shape.seq_len,
                starts=starts,
                longest=longest,
                tail=1,
                first=0,
                count=documents,
                wraps=False,
            )
            return CoreRows(core, shape, self.cache, split, self.places)
        data = self.config.data
        workers, seed, shuffle = max(1, data.workers), shape.seed % 2**32, data.shuffle != "off"
        key = repr((self.cache.seal, shape.seq_len, shape.batch_size, workers, data.epochs, seed, shuffle))
        index = self.cache.path / f"starts-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        packed = _core.PackedRows(
            file,
            shape.seq_len,
            starts=starts,
            longest=longest,
            tail=1,
            batch_size=shape.batch_size,
            workers=workers,
            epochs=data.epochs,
            seed=seed,
            shuffle=shuffle,
            index=str(index),
        )
        return PackedRows(packed, shape, self.cache, split, self.places)


class PackStreamed(StreamData):
    """The same data, tokenized while the run trains."""

    parts = PARTS

    @functools.cached_property
    def records(self) -> Records:
        """The positions of the training documents in their files."""
        processes = self.processes(self.kept)
        try:
            return find_records(processes, self.root, self.told)
        finally:
            processes.close()

    def rows(self, split: Split, shape: RowShape) -> Rows:
        _require_length(shape)
        if split == "train" and not self.records.count:  # checked before a run starts
            raise UserError("[data.path] expected at least 1 training documents, got none; use more data")
        return super().rows(split, shape)

    def opened(self, shape: RowShape, cursor: Cursor | None) -> PackStream:
        from mudd_core import _core

        processes = self.processes(self.kept, longest=shape.seq_len - 1, tail=1)
        data, rule = self.config.data, _core.RowRule("packed")

        def fill(rows: list[list[Int32]]) -> dict[str, Int32]:
            return filled_rows(rows, rule, PARTS, shape.seq_len, self.vocab_size)

        return PackStream(
            processes,
            self.records,
            fill,
            shape.batch_size,
            shape.seq_len,
            max(1, data.workers),
            data.epochs,
            shape.seed % 2**32,
            data.shuffle != "off",
            cursor,
        )

    def valid_rows(self, cache: TokenCache, shape: RowShape) -> CoreRows:
        return PackData(self.config, cache).rows("valid", shape)


def _require_length(shape: RowShape) -> None:
    if shape.seq_len < 3:
        raise UserError(f"[config] train.seq_len: data.pipeline=pack needs at least 3, got {shape.seq_len}")


def prepare(config: Config, how: Preparation) -> DocumentData | StreamData:
    """Prepare documents with BOS and EOS, tokenized once."""
    return whole_or_streamed(config, how, PackData, PackStreamed)


PIPELINE = Pipeline("pack", PARTS, prepare)
