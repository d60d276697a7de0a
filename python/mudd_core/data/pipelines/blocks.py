"""The pipeline `blocks`: documents joined without separators and split into blocks, as in the Mixtral benchmark.

Chunks of 65,536 documents (in validation all documents) are split into blocks of T ids; the last block is padded.
Training reads the files in a random order of data.seed, then shuffles the blocks in a reservoir of data.buffer blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Int32
from mudd_core.config import Config
from mudd_core.data.cache.token_cache import TokenCache
from mudd_core.data.documents.source import Frame
from mudd_core.data.pipelines.core_rows import CoreRows, filled_rows, token_file
from mudd_core.data.pipelines.document_data import DocumentData, whole_or_streamed
from mudd_core.data.rows import Cursor, Pipeline, Preparation, RowShape
from mudd_core.data.sources.corpus import Split
from mudd_core.data.streaming.blocks_stream import BlockStream
from mudd_core.data.streaming.data import StreamData

PARTS = ("key_mask",)
CHUNK_DOCUMENTS = 65_536
BUFFER = 256
Run = tuple[int, int]  # first id, number of ids


class BlocksData(DocumentData):
    """Documents without any ids around them."""

    frame: ClassVar[Frame] = "plain"
    hold_out: ClassVar[bool] = True

    def rows(self, split: Split, shape: RowShape) -> CoreRows:
        from mudd_core import _core

        documents = self.require_documents(split, 1, "data.pipeline=blocks")
        if split == "valid" and self.config.eval.documents:
            documents = min(documents, self.config.eval.documents)
        training, shuffled = split == "train", self.config.data.shuffle != "off"
        ends = [*self.cache.document_starts(split).tolist(), self.cache.place(split).count]
        ranges = self._file_ranges(shape.seed, shuffled) if training else [(0, documents)]
        begins, firsts, counts = [0], list[int](), list[int]()
        for chunk in chunks(ranges, CHUNK_DOCUMENTS if training else documents):
            runs = [(ends[first], ends[end] - ends[first]) for first, end in chunk]
            for block in blocks(runs, shape.seq_len):
                firsts += [first for first, _ in block]
                counts += [count for _, count in block]
                begins.append(len(firsts))
        if len(begins) < 2:
            raise UserError(f"[data.path] expected text in the documents of the {split} split, got none")
        core = _core.table_rows(
            token_file(self.cache, split),
            _core.RowRule("inside"),
            shape.seq_len,
            begins=np.array(begins, np.int64),
            firsts=np.array(firsts, np.int64),
            counts=np.array(counts, np.int64),
            buffer=(self.config.data.buffer or BUFFER) if training and shuffled else 0,
            seed=shape.seed,
            wraps=training,
        )
        return CoreRows(core, shape, self.cache, split, self.places)

    def _file_ranges(self, seed: int, shuffled: bool) -> list[tuple[int, int]]:
        """Return (first document, end) of each training file in reading order."""
        ends = self.file_ends()
        n = len(ends) - 1
        return [(ends[i], ends[i + 1]) for i in _file_order(n, seed, shuffled) if ends[i] < ends[i + 1]]


class BlocksStreamed(StreamData):
    """The same data, tokenized while the run trains."""

    parts = PARTS

    def opened(self, shape: RowShape, cursor: Cursor | None) -> BlockStream:
        from mudd_core import _core

        data, rule = self.config.data, _core.RowRule("inside")
        shuffled = data.shuffle != "off"

        def fill(rows: list[list[Int32]]) -> dict[str, Int32]:
            return filled_rows(rows, rule, PARTS, shape.seq_len, self.vocab_size)

        files = len(self.texts.files)
        all_files = files + len(
            self.source.valid.files
        )  # the order of a cache also includes the validation files
        order = [file for file in _file_order(all_files, shape.seed, shuffled) if file < files]
        return BlockStream(
            self.processes(self.kept),
            fill,
            shape.batch_size,
            shape.seq_len,
            CHUNK_DOCUMENTS,
            order,
            (data.buffer or BUFFER) if shuffled else 0,
            shape.seed,
            data.epochs,
            cursor,
        )

    def valid_rows(self, cache: TokenCache, shape: RowShape) -> CoreRows:
        return BlocksData(self.config, cache).rows("valid", shape)


def _file_order(count: int, seed: int, shuffled: bool) -> list[int]:
    from mudd_core import _core

    return [_core.permute(i, count, seed, "data.files") if shuffled else i for i in range(count)]


def chunks(ranges: Sequence[tuple[int, int]], size: int) -> Iterator[list[tuple[int, int]]]:
    """Yield lists of document ranges with `size` documents together, in order; the last list may have fewer."""
    chunk: list[tuple[int, int]] = []
    room = size
    for begin, end in ranges:
        first = begin
        while first < end:
            last = min(end, first + room)
            chunk.append((first, last))
            room -= last - first
            first = last
            if room == 0:
                yield chunk
                chunk, room = [], size
    if chunk:
        yield chunk


def blocks(runs: Sequence[Run], length: int) -> Iterator[list[Run]]:
    """Yield blocks of `length` ids, each a list of parts of the runs; the last block may be shorter."""
    block: list[Run] = []
    room = length
    for begin, count in runs:
        first, end = begin, begin + count
        while first < end:
            taken = min(room, end - first)
            block.append((first, taken))
            room -= taken
            first += taken
            if room == 0:
                yield block
                block, room = [], length
    if block:
        yield block


def prepare(config: Config, how: Preparation) -> DocumentData | StreamData:
    """Prepare documents without EOS, tokenized once."""
    return whole_or_streamed(config, how, BlocksData, BlocksStreamed)


PIPELINE = Pipeline("blocks", PARTS, prepare)
