"""The pipeline `rows` as a stream: one document per sequence, in the order of the files, repeated without end.

The number of documents in an epoch is a multiple of `unit`; the rest are skipped, as with a token cache.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mudd_core.base.errors import UserError
from mudd_core.base.types import Int32
from mudd_core.data.documents.origins import Origin
from mudd_core.data.rows import Cursor
from mudd_core.data.streaming.in_order import Document, InOrder
from mudd_core.data.streaming.processes import Processes
from mudd_core.data.streaming.rows import data_end, made

Fill = Callable[[list[list[Int32]]], dict[str, Int32]]


class DocumentStream:
    """The training batches.

    held: the number of first documents that are held out. unit: a multiple of the batch size.
    """

    def __init__(
        self,
        processes: Processes,
        fill: Fill,
        batch_size: int,
        unit: int,
        held: int,
        epochs: int,
        cursor: Cursor | None,
    ) -> None:
        self._processes, self._fill = processes, fill
        self._size, self._unit, self._held, self._epochs = batch_size, unit, held, epochs
        self.origins: Callable[[], list[list[Origin]]] = list
        self._ready: list[Document] = []  # unread documents of the current unit
        self.batch = 0
        if cursor is None:
            self._begin(0)
            return
        self.batch, self._epoch = cursor["batch"], cursor["epoch"]
        self._file, self._number, held = cursor["file"], cursor["number"], cursor["held"]
        self._source = InOrder(processes, self._order, self._file, self._number, held)
        self._pending = held  # documents to skip from this position
        if cursor["taken"]:
            self._read_unit()
            del self._ready[: cursor["taken"]]

    @property
    def _order(self) -> range:
        return range(len(self._processes.recipe.texts.files))

    def next_batch(self) -> dict[str, Int32]:
        """Return the next batch."""
        if not self._ready and not self._read_unit():
            if self._pending or (self._file, self._number) == (0, 0):
                raise UserError(
                    f"[data.path] expected at least {self._unit:,} documents (a batch, and data.buffer)"
                    + (f" after {self._held:,} that are held out" if self._held else "")
                    + ", got fewer; use more data, a smaller train.batch_size or data.buffer"
                )
            self._begin(self._epoch + 1)
            self._read_unit()
        read = self._ready[: self._size]
        arrays = self._fill([[document.ids] for document in read])
        self.origins = partial(self._located, read)
        del self._ready[: self._size]
        self.batch += 1
        if not self._ready:
            self._file, self._number, self._pending = *self._behind, 0
        return arrays

    def _located(self, documents: list[Document]) -> list[list[Origin]]:
        return [[Origin(0, None, self._source.place_of(one.file, one.number))] for one in documents]

    def cursor(self) -> Cursor:
        """Return the position of the current unit, and how many of its documents were used."""
        taken = self._unit - len(self._ready) if self._ready else 0
        return made(
            "rows",
            self.batch,
            epoch=self._epoch,
            file=self._file,
            number=self._number,
            held=self._pending,
            taken=taken,
        )

    def close(self) -> None:
        """End the processes."""
        self._processes.close()

    def _begin(self, epoch: int) -> None:
        if self._epochs and epoch >= self._epochs:
            raise data_end(self.batch, self._epochs)
        self._epoch, self._file, self._number, self._pending = epoch, 0, 0, self._held
        self._source = InOrder(self._processes, self._order, skipped=self._held)

    def _read_unit(self) -> bool:
        """Read a whole unit; return False if fewer documents are left."""
        found: list[Document] = []
        while len(found) < self._unit:
            document = self._source.next_document()
            if document is None:
                return False
            found.append(document)
            self._behind = (document.file, document.number + 1)
        self._ready = found
        return True
