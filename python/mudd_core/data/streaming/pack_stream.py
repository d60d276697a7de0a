"""The pipeline `pack` as a stream: documents in the order of a keyed permutation, packed first-fit.

The packing is the same as in cpp/mudd/data/packed_rows.h. The cursor is the start of a batch in that packing: one
position for each of the data.workers streams.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from mudd_core.base.types import Int32
from mudd_core.data.documents.origins import Origin
from mudd_core.data.rows import Cursor
from mudd_core.data.streaming.processes import Processes
from mudd_core.data.streaming.records import Records
from mudd_core.data.streaming.rows import data_end, made

Fill = Callable[[list[list[Int32]]], dict[str, Int32]]
_PIECE = 32  # documents in one request to a process


class _Ahead:
    """The documents of one stream of the order, requested before they are needed."""

    def __init__(self, ask: Callable[[int, int], tuple[int, int]], processes: Processes, place: int) -> None:
        """Start at a position.

        ask: requests documents from a position; returns their ticket and their number, 0 after the end.
        """
        self._ask, self._processes = ask, processes
        self.place = place  # position of the next document
        self._asked = place
        self._tickets: deque[int] = deque()
        self._ready: deque[Int32] = deque()
        self._ended = False

    def ask_up_to(self, place: int) -> None:
        """Request all documents before this position."""
        while self._asked < place and not self._ended:
            ticket, count = self._ask(self._asked, _PIECE)
            self._ended = count < _PIECE
            if count:
                self._tickets.append(ticket)
            self._asked += count

    def peek(self) -> Int32 | None:
        """Return the next document without removing it; None after the end."""
        if not self._ready:
            self.ask_up_to(self.place + 1)
            if not self._tickets:
                return None
            _, (lengths, ids) = self._processes.result(self._tickets.popleft())
            self._ready.extend(np.split(ids, np.cumsum(lengths)[:-1]))
        return self._ready[0]

    def drop(self) -> None:
        """Advance past the next document."""
        self._ready.popleft()
        self.place += 1


class PackStream:
    """The training batches. workers: streams that share the order. Turn t is stream t mod workers if it has data."""

    def __init__(
        self,
        processes: Processes,
        records: Records,
        fill: Fill,
        batch_size: int,
        seq_len: int,
        workers: int,
        epochs: int,
        seed: int,
        shuffled: bool,
        cursor: Cursor | None,
    ) -> None:
        self._processes, self._records, self._fill = processes, records, fill
        self._size, self._length = batch_size, seq_len
        self._workers, self._epochs, self._seed, self._shuffled = workers, epochs, seed, shuffled
        self.batch = cursor["batch"] if cursor is not None else 0
        self._turn = (
            self.batch
        )  # turn of the next batch; larger than the batch's index once a stream has ended
        self._places_before_end = cursor.get("before_end", []) if cursor is not None else []
        places = [0] * workers
        if cursor is not None:  # a cursor lists the positions in the order of the next turns
            if len(cursor["places"]) != workers:
                raise LookupError(f"expected {workers} places, got {len(cursor['places'])}")
            # Cursors of earlier checkpoints have no turn; they were saved before any stream had ended.
            self._turn = cursor.get("turn", self.batch)
            for turn, place in enumerate(cursor["places"], self._turn):
                places[turn % workers] = place
            if self._places_before_end and not self._has_ended(places):
                # data.epochs was raised, so other documents complete the batches that were short.
                self.batch, *places = self._places_before_end
                self._turn = self.batch
        self._streams = [_Ahead(self._asker(number), processes, place) for number, place in enumerate(places)]
        self.origins: Callable[[], list[list[Origin]]] = list
        self._taken = 2 * batch_size  # estimate of the documents in a batch, from the last one
        self._ask_ahead()

    def next_batch(self) -> dict[str, Int32]:
        """Return the next batch; the last one of a stream may have few documents."""
        stream = self._next_stream()
        free = np.full(self._size, self._length, np.int64)
        rows: list[list[Int32]] = [[] for _ in range(self._size)]
        records: list[list[int]] = [[] for _ in range(self._size)]
        begin, worker = stream.place, self._streams.index(stream)
        while True:
            ids = stream.peek()
            if ids is None:
                break
            row = int(np.argmax(free >= ids.size))
            if free[row] < ids.size:
                break
            rows[row].append(ids)
            records[row].append(worker + stream.place * self._workers)
            free[row] -= ids.size
            stream.drop()
        self.batch += 1
        self._turn += 1
        self._taken = stream.place - begin
        self._ask_ahead()
        sizes = [[ids.size for ids in row] for row in rows]
        self.origins = partial(self._located, records, sizes)
        return self._fill(rows)

    def _located(self, records: Sequence[list[int]], sizes: Sequence[list[int]]) -> list[list[Origin]]:
        """Return the documents of sequences. records: their indices in the order. sizes: their numbers of ids."""
        documents = [one for row in records for one in map(self._document, row) if one is not None]
        files, numbers, _ = self._records.find(documents)
        places = iter(self._processes.recipe.places(files, numbers, self._records.counts))
        starts = [[*itertools.accumulate(lengths, initial=0)][:-1] for lengths in sizes]
        return [[Origin(at, None, next(places)) for at in row] for row in starts]

    def cursor(self) -> Cursor:
        """Return the next turn, and the position of the next document of each stream, in the order of their turns."""
        places = [stream.place for stream in self._streams]
        turns = range(self._turn, self._turn + self._workers)
        found = made(
            "pack", self.batch, turn=self._turn, places=[places[turn % self._workers] for turn in turns]
        )
        if not self._has_ended(places):
            self._places_before_end = [self.batch, *places]
        elif self._places_before_end:
            found["before_end"] = self._places_before_end
        return found

    def close(self) -> None:
        """End the processes."""
        self._processes.close()

    def _has_ended(self, places: list[int]) -> bool:
        """Return whether one of the streams, at these positions, is at the end of the data."""
        records = self._records.count * self._epochs
        return records > 0 and any(
            number + place * self._workers >= records for number, place in enumerate(places)
        )

    def _next_stream(self) -> _Ahead:
        """Return the stream of the next turn that has a document; raise UserError if all have ended."""
        for turn in range(self._turn, self._turn + self._workers):
            stream = self._streams[turn % self._workers]
            if stream.peek() is not None:
                self._turn = turn
                return stream
        raise data_end(self.batch, self._epochs)

    def _ask_ahead(self) -> None:
        """Request the next batches: two, or enough to keep the processes busy."""
        batches = max(2, -(-3 * _PIECE * self._processes.count // max(1, self._taken)))
        for turn in range(batches):
            stream = self._streams[(self._turn + turn) % self._workers]
            stream.ask_up_to(stream.place + (turn // self._workers + 1) * self._taken)

    def _asker(self, worker: int) -> Callable[[int, int], tuple[int, int]]:
        def ask(place: int, count: int) -> tuple[int, int]:
            wanted = [self._document(worker + (place + i) * self._workers) for i in range(count)]
            documents = [one for one in wanted if one is not None]
            if not documents:
                return -1, 0
            files, numbers, places = self._records.find(documents)
            file = str(self._processes.recipe.texts.files[int(files[0])])
            what = f"record {numbers[0]} and {len(documents) - 1} others of the order"
            return self._processes.submit(
                {"do": "pick"}, [files, numbers, places], file=file, what=what
            ), len(documents)

        return ask

    def _document(self, record: int) -> int | None:
        """Return the index of the document at an index of the order; None after the end."""
        from mudd_core import _core

        epoch, at = divmod(record, self._records.count)
        if self._epochs and epoch >= self._epochs:
            return None
        if not self._shuffled:
            return at
        return _core.shuffled_index(at, self._records.count, (self._seed + epoch) % 2**32)
