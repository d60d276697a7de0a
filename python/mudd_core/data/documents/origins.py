"""The documents of sequences: the number of each, its file, and its record in the file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from mudd_core.base.types import Int64
from mudd_core.data.cache.token_cache import TokenCache
from mudd_core.data.rows import Rows
from mudd_core.data.sources.corpus import Split

Piece = tuple[
    int, int, bool
]  # first id, number of ids, whether they continue the document of the piece before


@dataclass(frozen=True)
class Place:
    """A place in a file of the data. record: its position among the records of the file, from 1.

    byte: the index of its first byte in a plain text file that is cut into documents. first_id: the index of its first
    id in a file of plain ids. None: unknown, or the file has none.
    """

    file: Path
    record: int | None = None
    byte: int | None = None
    first_id: int | None = None


@dataclass(frozen=True)
class Origin:
    """A document, or a part of one, in a sequence.

    start: the index of its first input in the sequence. number: its position among the training documents of its
    source, from 0. None: unknown.
    """

    start: int = 0
    number: int | None = None
    place: Place | None = None


@runtime_checkable
class Located(Protocol):
    """Sequences whose documents are known."""

    def origins(self, samples: Sequence[int], *, files: bool) -> list[list[Origin]]:
        """Return the documents of each sample in order; an empty list for a sample whose documents are unknown.

        files: also find the files of the documents, for which all of the data may be read.
        """


FindPlaces = Callable[[Collection[int]], Mapping[int, Place]]


def origins_of(rows: Rows | None, samples: Sequence[int], *, files: bool) -> list[list[Origin]]:
    """Return the documents of samples, as Located.origins does; empty lists for other data."""
    return rows.origins(samples, files=files) if isinstance(rows, Located) else [[] for _ in samples]


def with_places(found: list[list[Origin]], find: FindPlaces | None) -> list[list[Origin]]:
    """Return documents with the places of their numbers. find: returns the places; None leaves the documents as are."""
    if find is None:
        return found
    places = find({one.number for row in found for one in row if one.number is not None})
    return [
        [one if one.number is None else replace(one, place=places.get(one.number)) for one in row]
        for row in found
    ]


class CachedDocuments:
    """The documents of a split of a token cache, by the positions of their ids."""

    def __init__(self, cache: TokenCache, split: Split) -> None:
        self._cache, self._split = cache, split

    @functools.cached_property
    def _starts(self) -> Int64:
        return self._cache.document_starts(self._split).astype(np.int64)

    def of(self, pieces: Iterable[Piece]) -> list[Origin]:
        """Return the documents of a sequence. pieces: its ids, in order."""
        found: list[Origin] = []
        at, starts = 0, self._starts
        for first, count, joined in pieces:
            begin = int(np.searchsorted(starts, first, side="right")) - 1
            end = int(np.searchsorted(starts, first + count, side="left"))
            for number in range(begin, end):
                is_empty = number + 1 < end and starts[number + 1] == starts[number]
                is_known = joined and number == begin and bool(found) and found[-1].number == number
                if not is_empty and not is_known:
                    found.append(Origin(at + max(0, int(starts[number]) - first), number))
            at += count
        return found
