"""Sequences of a stream by global sample index, and cursors (version 1): a few integers in a checkpoint."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeGuard, Unpack

import numpy as np

from mudd_core.base.errors import DataEndError, StopRequestedError
from mudd_core.base.types import Int32, Json
from mudd_core.config.pipelines import spec_of
from mudd_core.data.documents.origins import Origin
from mudd_core.data.rows import Cursor, CursorMembers, RowShape
from mudd_core.data.sources.corpus import Progress

VERSION = 1


class BatchStream(Protocol):
    """The batches of training from a position onwards."""

    batch: int  # index of the next batch
    # Returns the documents of each sequence of the last batch. It is valid after later batches were read.
    origins: Callable[[], list[list[Origin]]]

    def next_batch(self) -> dict[str, Int32]:
        """Return the arrays [B, T] of the next batch; raise UserError at the end of the data."""

    def cursor(self) -> Cursor:
        """Return the position of the next batch."""

    def close(self) -> None:
        """End its processes."""


def made(pipeline: str, batch: int, **members: Unpack[CursorMembers]) -> Cursor:
    """Return a cursor of this version."""
    return {"version": VERSION, "pipeline": pipeline, "batch": batch, **members}


def is_known(cursor: object, pipeline: str) -> TypeGuard[Cursor]:
    """Return whether the pipeline can continue from a cursor; if not, it starts from the first batch."""
    if not isinstance(cursor, Mapping) or cursor.get("version") != VERSION:
        return False
    fits = cursor.get("pipeline") == pipeline and cursor.keys() >= spec_of(pipeline).cursor_members
    return fits and _whole(dict(cursor))


def _whole(value: Json) -> bool:
    """Return whether a value is a non-negative integer or a string, or a list of these."""
    if isinstance(value, dict):
        return all(isinstance(name, str) and _whole(member) for name, member in value.items())
    if isinstance(value, list | tuple):
        return all(map(_whole, value))
    return isinstance(value, str) or (type(value) is int and 0 <= value < 1 << 63)


def data_end(batch: int, epochs: int) -> DataEndError:
    """Return the error for a run whose data end before its last step."""
    return DataEndError(
        f"[data.epochs] the data end before batch {batch:,} (data.epochs={epochs}); set train.steps={batch} or "
        "data.epochs=0"
    )


KEPT_BATCHES = 2  # a step that lost its source requests its batch again, so recent batches are kept
KEPT_CURSORS = 64


class StreamRows:
    """Training sequences in the order of their indices. To go back, the stream restarts from the last cursor before."""

    core = None
    rows = 0  # unknown until the end of an epoch

    def __init__(
        self,
        pipeline: str,
        shape: RowShape,
        parts: tuple[str, ...],
        opened: Callable[[Cursor | None], BatchStream],
        cursors: OrderedDict[int, Cursor],
        progress: Progress | None,
    ) -> None:
        """Create the sequences.

        opened: opens a stream at a cursor. cursors: the known cursors by batch, kept across reopening.
        """
        self.pipeline, self.shape, self.parts = pipeline, shape, parts
        self._opened, self._cursors, self._progress = opened, cursors, progress
        self._stream: BatchStream | None = None
        self._batches: OrderedDict[int, dict[str, Int32]] = OrderedDict()
        self._origins: dict[int, Callable[[], list[list[Origin]]]] = {}  # of these batches

    def batches(self, epochs: int) -> None:
        """Return None: the number of batches is unknown until the end of the data."""
        return None

    def arrays(self, first_sample: int, n_samples: int) -> dict[str, Int32]:
        size = self.shape.batch_size
        wanted = range(first_sample // size, (first_sample + n_samples - 1) // size + 1)
        found = [self._batch(number) for number in wanted]
        begin = first_sample - wanted.start * size
        if len(found) == 1 and begin == 0 and n_samples == size:
            return {name: array.copy() for name, array in found[0].items()}
        names = ("inputs", "targets", *self.parts)
        return {
            name: np.concatenate([batch[name] for batch in found])[begin : begin + n_samples].copy()
            for name in names
        }

    def origins(self, samples: Sequence[int], *, files: bool) -> list[list[Origin]]:
        """Return the documents of each sample, as Located.origins does. Their files are always known."""
        found = []
        for sample in samples:
            number, row = divmod(sample, self.shape.batch_size)
            self._batch(number)
            found.append(self._origins[number]()[row])
        return found

    def cursor(self, batch: int) -> Cursor | None:
        """Return the last known position that is not after this batch."""
        before = [number for number in self._cursors if number <= batch]
        return self._cursors[max(before)] if before else None

    def go_on(self, cursor: object) -> None:
        """Continue from a checkpoint's position; a position of another version or pipeline is ignored."""
        if is_known(cursor, self.pipeline):
            self._cursors[cursor["batch"]] = cursor

    def close(self) -> None:
        """End the processes; a later request for a batch restarts them."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _batch(self, number: int) -> dict[str, Int32]:
        if number in self._batches:
            return self._batches[number]
        stream = self._at(number)
        try:
            arrays = stream.next_batch()
        except BaseException:
            self.close()  # the stream may be in the middle of a batch
            raise
        self._remember(stream)
        self._batches[number], self._origins[number] = arrays, stream.origins
        while len(self._batches) > KEPT_BATCHES:
            del self._origins[self._batches.popitem(last=False)[0]]
        return arrays

    def _remember(self, stream: BatchStream) -> None:
        self._cursors[stream.batch] = stream.cursor()
        while len(self._cursors) > KEPT_CURSORS:
            self._cursors.popitem(last=False)

    def _at(self, number: int) -> BatchStream:
        """Return the stream, advanced to this batch."""
        stream = self._stream
        if stream is None or stream.batch > number:
            self.close()
            stream = self._stream = self._opened_at(number)
        begin, told = stream.batch, time.monotonic() + 1
        try:
            while stream.batch < number:
                self._pass(stream)
                if self._progress is not None and time.monotonic() >= told:
                    told = time.monotonic() + 0.1
                    self._progress("tokenizing up to the step", stream.batch - begin, number - begin)
        except BaseException:
            self.close()
            raise
        return stream

    def _opened_at(self, number: int) -> BatchStream:
        """Open a stream at the last usable cursor before a batch."""
        while True:
            cursor = self.cursor(number)
            try:
                return self._opened(cursor)
            except (LookupError, TypeError):
                if cursor is None:
                    raise
                del self._cursors[cursor["batch"]]

    def _pass(self, stream: BatchStream) -> None:
        from mudd_core import _core

        if _core.stop_requested():
            raise StopRequestedError(f"[data] stop requested while batches were skipped, at {stream.batch:,}")
        stream.next_batch()
        self._remember(stream)
