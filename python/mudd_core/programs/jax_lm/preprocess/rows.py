"""Sequences from documents: overlapping windows of ids with BOS, EOS and padding, as inputs, mask and labels.

Several processes build the sequences, which have the order of the documents for any number of processes.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import UserError
from mudd_core.programs.jax_lm.preprocess.vocabulary import Encoder, Vocabulary

Ids = npt.NDArray[np.int64]
CHUNK = 256  # documents that a process handles at once
PAD = 0  # as in the original program, whatever id the tokenizer uses for padding


@dataclass(frozen=True)
class Shape:
    """The sizes of windows.

    length: tokens of a sequence. shortest: least tokens of a window, including the reserved ones.

    by_position: padding starts after the window. Otherwise, as in the original program, every id 0 is padding, although
    0 is a real token in some vocabularies.
    """

    length: int = 256
    shortest: int = 128
    reserved: int = 2
    stride: int = 128
    ignore_label: int = -100
    by_position: bool = False

    def __post_init__(self) -> None:
        if self.length < 1:
            raise UserError(f"[preprocess] --max-sequence-length: expected at least 1, got {self.length}")
        if self.stride < 1:
            raise UserError(f"[preprocess] --stride: expected at least 1, got {self.stride}")
        if not 0 <= self.reserved <= self.length:
            raise UserError(
                f"[preprocess] --num-special-token-reserved: expected 0 to {self.length} "
                f"(--max-sequence-length), got {self.reserved}"
            )
        if not self.shortest - self.reserved < self.longest_window:
            raise UserError(
                f"[preprocess] --min-sequence-length: expected at most {self.length} (--max-sequence-length), "
                f"got {self.shortest}; longer windows than that do not exist"
            )

    @property
    def longest_window(self) -> int:
        """Return the tokens of a full window: one more than the inputs, since the last token is only a label."""
        return self.length - self.reserved + 1


@dataclass(frozen=True)
class Rows:
    """The sequences [n, length] of some documents, in order."""

    input_ids: Ids
    attention_mask: npt.NDArray[np.float32]
    labels: Ids

    def __len__(self) -> int:
        return len(self.input_ids)

    def part(self, first: int, last: int) -> Rows:
        """Return the sequences [first, last)."""
        place = slice(first, last)
        return Rows(self.input_ids[place], self.attention_mask[place], self.labels[place])

    @staticmethod
    def joined(parts: list[Rows], length: int) -> Rows:
        """Concatenate the sequences of several parts."""
        empty = np.zeros((0, length), np.int64)
        return Rows(
            np.concatenate([empty, *(part.input_ids for part in parts)]),
            np.concatenate([empty.astype(np.float32), *(part.attention_mask for part in parts)]),
            np.concatenate([empty, *(part.labels for part in parts)]),
        )


def rows_of(ids: npt.ArrayLike, bos: int, eos: int, shape: Shape) -> Rows:
    """Return the sequences of one document: one for each window with more than shortest - reserved tokens."""
    tokens = np.asarray(ids, np.int64)
    starts = np.arange(0, len(tokens), shape.stride)
    sizes = np.minimum(shape.longest_window, len(tokens) - starts)
    kept = sizes > shape.shortest - shape.reserved
    starts, sizes = starts[kept], sizes[kept]
    width = max(shape.longest_window + 2, shape.length + 1)
    ends = (sizes + 1)[:, None]  # the position of EOS in each window
    place = np.arange(width)[None, :]
    index = np.clip(starts[:, None] + place - 1, 0, max(len(tokens) - 1, 0))
    full = np.where(place < ends, tokens[index] if len(tokens) else PAD, PAD)
    full[:, 0] = bos
    full[place == ends] = eos
    inputs, labels = full[:, : shape.length], full[:, 1 : shape.length + 1]
    padding = place > ends if shape.by_position else full == PAD
    return Rows(
        np.ascontiguousarray(inputs),
        (~padding[:, : shape.length]).astype(np.float32),
        np.where(padding[:, 1 : shape.length + 1], shape.ignore_label, labels),
    )


_worker: list[tuple[Encoder, Vocabulary, Shape]] = []  # objects that a worker process keeps


@dataclass(frozen=True)
class Chunk:
    """Consecutive documents whose sequences are written to one file."""

    shard: int
    texts: tuple[str, ...]


def chunks_of(texts: Iterable[str], total: int, shards: int) -> Iterator[Chunk]:
    """Yield the documents in chunks; file s of n gets the documents from total s / n to total (s + 1) / n."""
    source = iter(texts)
    for shard in range(shards):
        left = total * (shard + 1) // shards - total * shard // shards
        while left:
            taken = tuple(itertools.islice(source, min(left, CHUNK)))
            if not taken:
                raise UserError(
                    "[preprocess] --dataset-name: the files changed while they were read; run it again"
                )
            left -= len(taken)
            yield Chunk(shard, taken)


def rows_in_order(
    chunks: Iterable[Chunk], vocabulary: Vocabulary, shape: Shape, workers: int
) -> Iterator[tuple[Chunk, Rows]]:
    """Yield each chunk with its sequences, in order; a few chunks for each worker are read ahead."""
    if workers == 1:
        encode = vocabulary.encoder()
        yield from ((chunk, make_rows(chunk.texts, encode, vocabulary, shape)) for chunk in chunks)
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy locks that other threads hold
    with ProcessPoolExecutor(workers, context, _begin, (vocabulary, shape)) as pool:
        waiting: deque[tuple[Chunk, Future[Rows]]] = deque()
        try:
            for chunk in chunks:
                waiting.append((chunk, pool.submit(_work, chunk.texts)))
                if len(waiting) > 4 * workers:
                    done, rows = waiting.popleft()
                    yield done, rows.result()
            while waiting:
                done, rows = waiting.popleft()
                yield done, rows.result()
        except BrokenProcessPool:
            raise UserError(
                "[preprocess] a worker process was killed (out of memory?); no file was written"
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def make_rows(texts: Sequence[str], encode: Encoder, vocabulary: Vocabulary, shape: Shape) -> Rows:
    """Build the sequences of some documents."""
    parts = [rows_of(ids, vocabulary.bos, vocabulary.eos, shape) for ids in encode(texts)]
    return Rows.joined(parts, shape.length)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _begin(vocabulary: Vocabulary, shape: Shape) -> None:
    """Prepare a worker. Its tokenizer uses one thread, because there is a worker for each core."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches all processes; the main process stops the workers
    _worker.append((vocabulary.encoder(), vocabulary, shape))


def _work(texts: tuple[str, ...]) -> Rows:
    encode, vocabulary, shape = _worker[0]
    return make_rows(texts, encode, vocabulary, shape)
