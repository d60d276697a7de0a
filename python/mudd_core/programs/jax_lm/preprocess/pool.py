"""Rows made by several processes, in the order of the documents whatever their number."""

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

from mudd_core.base.errors import UserError
from mudd_core.programs.jax_lm.preprocess.rows import Rows, Shape, rows_of
from mudd_core.programs.jax_lm.preprocess.vocabulary import Encoder, Vocabulary

CHUNK = 256  # documents that a process takes at once
_worker: list[tuple[Encoder, Vocabulary, Shape]] = []  # what a worker process keeps


@dataclass(frozen=True)
class Chunk:
    """Documents that follow each other, all for one file."""

    shard: int
    texts: tuple[str, ...]


def chunks_of(texts: Iterable[str], total: int, shards: int) -> Iterator[Chunk]:
    """The documents in their order; file s of n takes those from total s / n to total (s + 1) / n."""
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
    """The rows of each chunk; a few chunks for each worker are read ahead."""
    if workers == 1:
        encode = vocabulary.encoder()
        yield from ((chunk, make_rows(chunk.texts, encode, vocabulary, shape)) for chunk in chunks)
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy the locks of the threads that run here
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
                "[preprocess] a worker process was killed (is memory short?); no file was made"
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def make_rows(texts: Sequence[str], encode: Encoder, vocabulary: Vocabulary, shape: Shape) -> Rows:
    """The rows of some documents."""
    parts = [rows_of(ids, vocabulary.bos, vocabulary.eos, shape) for ids in encode(texts)]
    return Rows.joined(parts, shape.length)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _begin(vocabulary: Vocabulary, shape: Shape) -> None:
    """Prepare a worker; its library uses one thread, since there is a worker for each core."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the first process ends the others
    _worker.append((vocabulary.encoder(), vocabulary, shape))


def _work(texts: tuple[str, ...]) -> Rows:
    encode, vocabulary, shape = _worker[0]
    return make_rows(texts, encode, vocabulary, shape)
