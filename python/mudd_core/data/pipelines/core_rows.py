"""Sequences that C++ builds from a token cache of documents, or from ids in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.errors import FormatError
from mudd_core.base.types import Int32
from mudd_core.data.cache.token_cache import TokenCache, way_out
from mudd_core.data.documents.origins import CachedDocuments, FindPlaces, Origin, with_places
from mudd_core.data.rows import Cursor, RowShape, filled
from mudd_core.data.sources.corpus import Split
from mudd_core.data.streaming.rows import made

if TYPE_CHECKING:
    from mudd_core import _core


@dataclass(frozen=True)
class CoreRows:
    """Sequences of documents of a split in a token cache. Errors about damaged ids name `cache`.

    places: finds the files of documents by their numbers.
    """

    core: _core.PlannedRows
    shape: RowShape
    cache: TokenCache
    split: Split
    places: FindPlaces

    @property
    def rows(self) -> int:
        return self.core.rows

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.core.parts)

    def batches(self, epochs: int) -> int:
        """Return the number of whole batches in `epochs` epochs."""
        return epochs * self.rows // self.shape.batch_size

    def origins(self, samples: Sequence[int], *, files: bool) -> list[list[Origin]]:
        """Return the documents of each sample, as Located.origins does."""
        documents = CachedDocuments(self.cache, self.split)
        found = [documents.of(self.core.pieces(sample)) for sample in samples]
        return with_places(found, self.places if files else None)

    def arrays(self, first_sample: int, n_samples: int) -> dict[str, Int32]:
        try:
            return filled(self.core, self.parts, self.shape.seq_len, first_sample, n_samples)
        except FormatError as e:
            raise FormatError(e.file, e.offset, f"{e.reason}; {way_out(self.cache.path)}") from None


@dataclass(frozen=True)
class PackedRows(CoreRows):
    """Sequences of packed documents; the packing determines the number of sequences."""

    core: _core.PackedRows

    def batches(self, epochs: int) -> int:
        """Return the number of batches in data.epochs, including the last batch of each worker."""
        return self.core.batches()

    def cursor(self, batch: int) -> Cursor | None:
        """Return the position for a stream that continues from this cache; None at the end of the data."""
        try:
            turn, places = self.core.cursor(batch)
        except ValueError:
            return None
        return made("pack", batch, turn=turn, places=list(places))

    def go_on(self, cursor: object) -> None:
        """Do nothing: a cache finds any position directly."""


def token_file(cache: TokenCache, split: Split) -> _core.TokenFileSpec:
    """Return the location of a split's ids for C++."""
    from mudd_core import _core

    place = cache.place(split)
    return _core.TokenFileSpec(
        path=str(cache.file),
        offset=place.offset,
        count=place.count,
        width=place.width,
        vocab_size=cache.vocab_size,
        block_crcs=list(place.block_crcs),
    )


def filled_rows(
    rows: Sequence[Sequence[Int32]],
    rule: _core.RowRule,
    parts: tuple[str, ...],
    seq_len: int,
    vocab_size: int,
) -> dict[str, Int32]:
    """Return arrays by name, built from sequences of documents."""
    from mudd_core import _core

    documents = [ids for row in rows for ids in row]
    core = _core.memory_rows(
        np.concatenate([np.empty(0, np.int32), *documents]),
        np.array([ids.size for ids in documents], np.int64),
        np.array([len(row) for row in rows], np.int64),
        rule,
        seq_len,
        vocab_size,
    )
    return filled(core, parts, seq_len, 0, len(rows))
