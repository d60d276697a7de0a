"""Documents of files in order, tokenized in advance by several processes.

Each process reads the whole file and tokenizes its part: reading is cheap compared with tokenizing. A compressed file
can only be read in order anyway. The number of pieces of about PIECE_BYTES of text limits the work in advance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mudd_core.data.documents.origins import Place
from mudd_core.data.messages import Head
from mudd_core.data.streaming.processes import Processes
from mudd_core.data.streaming.recipe import Int32

PIECE_BYTES = 1 << 18
_ALL = 1 << 40  # more documents than a small file has
_AHEAD = 3  # pieces requested in advance for each process
_FIRST, _MOST = 16, 1024  # documents in the first piece, and at most


@dataclass(frozen=True)
class Document:
    """The ids of a document, the position of its file in the order, and its index in the file."""

    ids: Int32
    file: int
    number: int


@dataclass(frozen=True)
class _Piece:
    file: int
    first: int
    count: int
    ticket: int


class InOrder:
    """Documents from a position onwards. `order` lists the files by their indices in the recipe."""

    def __init__(
        self, processes: Processes, order: Sequence[int], file: int = 0, number: int = 0, skipped: int = 0
    ) -> None:
        """Start at a document.

        file, number: the position of this document. skipped: the number of documents to skip first.
        """
        self._processes, self._order = processes, order
        self._next = (file, number)  # start of the next piece to request
        self._asked: deque[_Piece] = deque()
        self._ready: deque[Document] = deque()
        self._size = _FIRST
        self.lacking = self._skip(skipped)

    def next_document(self) -> Document | None:
        """Return the next document; None after the last file."""
        while not self._ready:
            self._ask()
            if not self._asked:
                return None
            self._receive(self._asked.popleft())
        return self._ready.popleft()

    def place_of(self, file: int, number: int) -> Place:
        """Return the place of a document. file: the position of its file in the order. number: its index there."""
        recipe = self._processes.recipe
        record = None if recipe.texts.bad.drops else number + 1
        return Place(recipe.texts.files[self._order[file]], record)

    def close(self) -> None:
        """Discard the documents that were requested in advance."""
        self._processes.forget(piece.ticket for piece in self._asked)
        self._asked.clear()

    def _skip(self, count: int) -> int:
        """Skip documents without tokenizing them. Return how many of the `count` documents do not exist."""
        while count > 0 and self._next[0] < len(self._order):
            file, number = self._next
            head, _ = self._processes.result(self._submit(file, number, count, wanted=False))
            count -= head["read"]
            self._next = (file + 1, 0) if head["ended"] else (file, number + head["read"])
        return count

    def _ask(self) -> None:
        """Request pieces from all processes; a small file is one piece."""
        while len(self._asked) < _AHEAD * self._processes.count and self._next[0] < len(self._order):
            file, number = self._next
            path = self._processes.recipe.texts.files[self._order[file]]
            try:
                small = path.stat().st_size <= PIECE_BYTES
            except OSError:  # the process reports the error
                small = True
            count = _ALL if small else self._size
            self._asked.append(_Piece(file, number, count, self._submit(file, number, count)))
            self._next = (file + 1, 0) if small else (file, number + count)

    def _submit(self, file: int, number: int, count: int, *, wanted: bool = True) -> int:
        path = self._processes.recipe.texts.files[self._order[file]]
        what = f"records {number} to {number + count - 1}" if count < _ALL else f"records from {number} on"
        job: Head = {"do": "read", "file": self._order[file], "first": number, "count": count, "ids": wanted}
        return self._processes.submit(job, file=str(path), what=what)

    def _receive(self, piece: _Piece) -> None:
        head, (lengths, ids, numbers) = self._processes.result(piece.ticket)
        rows = np.split(ids, np.cumsum(lengths)[:-1]) if lengths.size else []
        for row, number in zip(rows, numbers.tolist(), strict=True):
            self._ready.append(Document(row, piece.file, number))
        if head["read"] and piece.count < _ALL:
            wanted = PIECE_BYTES * head["read"] // max(1, head["bytes"])
            self._size = min(max(wanted, 1), _MOST)
        if head["ended"] and piece.count < _ALL:
            self._pass_end_of(piece.file)

    def _pass_end_of(self, file: int) -> None:
        """Discard requests that start after the end of a file."""
        behind = [piece for piece in self._asked if piece.file == file]
        self._processes.forget(piece.ticket for piece in behind)
        self._asked = deque(piece for piece in self._asked if piece.file != file)
        if self._next[0] == file:
            self._next = (file + 1, 0)
