"""Batches from a token cache, addressed by the global sample index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import Int32
from mudd_core.data.cache.token_cache import TokenCache, way_out
from mudd_core.data.documents.origins import CachedDocuments, FindPlaces, Origin, with_places
from mudd_core.data.sources.corpus import Split


class Batcher:
    """Sequences of a split by global sample index; cpp/mudd/data/batcher.h defines their order.

    train: the sample index is unbounded, and `rows` samples are one epoch. valid: samples 0 .. rows - 1 predict every
    token after the first exactly once; later samples contain only padding. in_order: read either split like valid.
    places: finds the files of documents by their numbers. Raise UserError if the split is too short.
    """

    def __init__(
        self,
        cache: TokenCache,
        split: Split,
        seq_len: int,
        seed: int = 0,
        batch_size: int = 1,
        *,
        in_order: bool = False,
        places: FindPlaces | None = None,
    ) -> None:
        from mudd_core import _core

        if split not in ("train", "valid"):
            raise ValueError(f"[batcher] split: expected 'train' or 'valid', got {split!r}")
        place = cache.place(split)
        needed = seq_len + 1 if split == "train" else 2
        if place.count < needed:
            more = (
                "a smaller train.seq_len" if split == "train" else "validation files named by data.eval_path"
            )
            raise UserError(
                f"[data] the corpus is too short: its {split} split has {place.count} tokens and needs {needed}"
                f"{' (train.seq_len + 1)' if split == 'train' else ''}; use more text, or {more}"
            )
        self.cache, self._places = cache, places
        self._documents = CachedDocuments(cache, split)
        self._batch_size = batch_size
        self.seq_len = seq_len
        self.core = _core.Batcher(
            path=str(cache.file),
            offset=place.offset,
            count=place.count,
            width=place.width,
            vocab_size=cache.vocab_size,
            block_crcs=place.block_crcs,
            shuffled=split == "train" and not in_order,
            seq_len=seq_len,
            seed=seed,
            pad_id=cache.eos_id,
        )

    @property
    def rows(self) -> int:
        """The number of sequences in an epoch (train) or in the whole split (valid)."""
        return int(self.core.rows)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of further arrays: none for this source."""
        return ()

    def origins(self, samples: Sequence[int], *, files: bool) -> list[list[Origin]]:
        """Return the documents of each sample, as Located.origins does."""
        found = [
            self._documents.of([(self.core.start_of(sample), self.seq_len, False)]) for sample in samples
        ]
        return with_places(found, self._places if files else None)

    def batches(self, epochs: int) -> int:
        """Return the number of whole batches in `epochs` epochs."""
        return epochs * self.rows // self._batch_size

    def fill(self, first_sample: int, inputs: Int32, targets: Int32) -> int:
        """Fill int32 arrays [samples, seq_len] starting at `first_sample`; return the number of targets with a loss."""
        try:
            return int(self.core.fill(first_sample, inputs, targets))
        except FormatError as e:
            raise FormatError(e.file, e.offset, f"{e.reason}; {way_out(self.cache.path)}") from None

    def batch(self, first_sample: int, n_samples: int) -> tuple[Int32, Int32]:
        """Return new arrays (inputs, targets) of `n_samples` samples starting at `first_sample`."""
        inputs = np.empty((n_samples, self.seq_len), np.int32)
        targets = np.empty((n_samples, self.seq_len), np.int32)
        self.fill(first_sample, inputs, targets)
        return inputs, targets

    def arrays(self, first_sample: int, n_samples: int) -> dict[str, Int32]:
        """Return the arrays of `batch` by name."""
        inputs, targets = self.batch(first_sample, n_samples)
        return {"inputs": inputs, "targets": targets}
