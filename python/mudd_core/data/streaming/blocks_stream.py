"""The pipeline `blocks` as a stream: documents joined in chunks, split into blocks, shuffled by a reservoir.

The cursor has the indices of the blocks in the reservoir, and the position of the oldest of these blocks. A resumed
stream reads from that position, which is about seven times the reservoir's size back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Int32
from mudd_core.data.documents import origins
from mudd_core.data.rows import Cursor
from mudd_core.data.streaming.in_order import InOrder
from mudd_core.data.streaming.processes import Processes
from mudd_core.data.streaming.rows import data_end, made

Fill = Callable[[list[list[Int32]]], dict[str, Int32]]


@dataclass(frozen=True)
class Origin:
    """The position of a block's start. used: ids of its document before it. chunk: earlier documents of its chunk."""

    number: int = 0
    file: int = 0
    document: int = 0
    used: int = 0
    chunk: int = 0


@dataclass(frozen=True)
class Block:
    """A block's ids, its position, and (first id in the block, file, index in the file) of each document."""

    ids: Int32
    origin: Origin
    documents: tuple[tuple[int, int, int], ...]


class _Cutting:
    """The blocks of an epoch from a given block onwards."""

    def __init__(self, source: InOrder, length: int, chunk: int, origin: Origin) -> None:
        self._source, self._length, self._chunk = source, length, chunk
        self._number, self._documents, self._used = origin.number, origin.chunk, origin.used
        self._parts: deque[Int32] = deque()
        self._inside: list[tuple[int, int, int]] = []
        self._held = 0
        self._origin = origin
        self._ready: deque[Block] = deque()
        self._ended = False

    def next_block(self) -> Block | None:
        """Return the next block; None at the end of the epoch."""
        while not self._ready and not self._ended:
            self._read()
        return self._ready.popleft() if self._ready else None

    def _read(self) -> None:
        document = self._source.next_document()
        if document is None:
            self._flush()
            self._ended = True
            return
        ids, first = document.ids, self._used
        self._used = 0
        while first < ids.size:
            if not self._held:
                self._origin = Origin(self._number, document.file, document.number, first, self._documents)
            taken = min(self._length - self._held, ids.size - first)
            self._inside.append((self._held, document.file, document.number))
            self._parts.append(ids[first : first + taken])
            self._held += taken
            first += taken
            if self._held == self._length:
                self._flush()
        self._documents += 1
        if self._documents == self._chunk:
            self._flush()
            self._documents = 0

    def _flush(self) -> None:
        if self._held:
            self._ready.append(Block(np.concatenate(self._parts), self._origin, tuple(self._inside)))
            self._parts.clear()
            self._inside.clear()
            self._held = 0
            self._number += 1


class BlockStream:
    """The training batches.

    order: the indices of the files. buffer: blocks in the reservoir; 0 or 1 for no reservoir.
    """

    def __init__(
        self,
        processes: Processes,
        fill: Fill,
        batch_size: int,
        length: int,
        chunk: int,
        order: Sequence[int],
        buffer: int,
        seed: int,
        epochs: int,
        cursor: Cursor | None,
    ) -> None:
        from mudd_core import _core

        self._processes, self._fill, self._size = processes, fill, batch_size
        self._length, self._chunk, self._order = length, chunk, order
        self._buffer, self._epochs = max(buffer, 1), epochs
        self._key = _core.philox_key(seed, "data.reservoir")
        self.batch = 0
        self._reservoir: list[Block] = []
        self.origins: Callable[[], list[list[origins.Origin]]] = list
        self._blocks = self._from(cursor) if cursor is not None else self._all(0)

    def next_batch(self) -> dict[str, Int32]:
        """Return the next batch."""
        read = [next(self._blocks) for _ in range(self._size)]
        self.origins = partial(self._located, read)
        self.batch += 1
        return self._fill([[block.ids] for block in read])

    def _located(self, blocks: list[Block]) -> list[list[origins.Origin]]:
        return [
            [
                origins.Origin(start, None, self._source.place_of(file, number))
                for start, file, number in block.documents
            ]
            for block in blocks
        ]

    def cursor(self) -> Cursor:
        """Return the indices of the reservoir's blocks and the position of the oldest block."""
        held = self._reservoir
        if not held:  # at the end of an epoch
            return _cursor(self.batch, self._epoch + 1, 0, 0, 0, [], Origin())
        origin = min((block.origin for block in held), key=lambda one: one.number)
        slots = [block.origin.number for block in held]
        return _cursor(self.batch, self._epoch, self._draws, self._read, int(self._ended), slots, origin)

    def close(self) -> None:
        """End the processes."""
        self._processes.close()

    def _all(self, epoch: int) -> Iterator[Block]:
        """Yield blocks without end, starting at an epoch."""
        while True:
            self._start(epoch, Origin())
            yield from self._rest()
            epoch += 1

    def _from(self, cursor: Cursor) -> Iterator[Block]:
        """Return an iterator over the blocks that follow a cursor."""
        self.batch = cursor["batch"]
        self._start(cursor["epoch"], Origin(*cursor["origin"]))
        self._draws = cursor["draws"]
        slots = {number: slot for slot, number in enumerate(cursor["slots"])}
        if not cursor["ended"] and len(slots) != min(cursor["read"], self._buffer):
            raise LookupError(f"{len(slots)} blocks in a reservoir of {self._buffer}")
        found: dict[int, Block] = {}
        while self._read < cursor["read"]:
            block = self._cut()
            if block is None:
                break
            if block.origin.number in slots:
                found[slots[block.origin.number]] = block
        self._reservoir = [found[slot] for slot in range(len(slots))]
        self._ended = bool(cursor["ended"])
        return self._then_all(cursor["epoch"] + 1)

    def _then_all(self, epoch: int) -> Iterator[Block]:
        yield from self._rest()
        yield from self._all(epoch)

    def _start(self, epoch: int, origin: Origin) -> None:
        if self._epochs and epoch >= self._epochs:
            raise data_end(self.batch, self._epochs)
        self._source = InOrder(self._processes, self._order, origin.file, origin.document)
        self._cutting = _Cutting(self._source, self._length, self._chunk, origin)
        self._epoch, self._draws, self._read, self._ended = epoch, 0, origin.number, False
        self._reservoir = []

    def _cut(self) -> Block | None:
        block = self._cutting.next_block()
        self._read += block is not None
        return block

    def _rest(self) -> Iterator[Block]:
        """Yield the blocks of this epoch that were not returned yet, in the order of TableRows::shuffle."""
        held = self._reservoir
        while not self._ended:
            block = self._cut()
            if block is None:
                self._ended = True
            elif len(held) < self._buffer:
                held.append(block)
            else:
                slot = self._below(len(held))
                given, held[slot] = held[slot], block
                yield given
        if not held and self._read == 0:
            raise UserError("[data.path] expected text in the train documents, got none")
        while held:
            slot = self._below(len(held))
            held[slot], held[-1] = held[-1], held[slot]
            yield held.pop()

    def _below(self, limit: int) -> int:
        from mudd_core import _core

        if self._buffer == 1:
            return 0
        words = _core.philox([self._epoch, self._draws, 0, 0], self._key)
        self._draws += 1
        return (words[1] << 32 | words[0]) % limit


def _cursor(
    batch: int, epoch: int, draws: int, read: int, ended: int, slots: list[int], origin: Origin
) -> Cursor:
    place = [origin.number, origin.file, origin.document, origin.used, origin.chunk]
    return made("blocks", batch, epoch=epoch, draws=draws, read=read, ended=ended, slots=slots, origin=place)
