"""The pipeline `pack`: rows packed first-fit from whole documents, as TokenFormer's loader makes them.

A document is bos, its first T - 3 ids, eos; validation has one document a row, in order.
"""

from __future__ import annotations

import hashlib
from typing import ClassVar

from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.data.corpus import Split
from mudd_core.data.pipelines.core_rows import CoreRows, PackedRows, token_file
from mudd_core.data.pipelines.documents import Frame
from mudd_core.data.pipelines.documents_data import DocumentData, Preparation, documents_of
from mudd_core.data.pipelines.pipeline import RowShape

PARTS = ("positions", "segments")


class PackData(DocumentData):
    """Documents between bos and eos."""

    frame: ClassVar[Frame] = "ends"
    hold_out: ClassVar[bool] = True

    def rows(self, split: Split, shape: RowShape) -> CoreRows:
        from mudd_core import _core

        if shape.seq_len < 3:
            raise UserError(
                f"[config] train.seq_len: data.pipeline=pack needs at least 3, got {shape.seq_len}"
            )
        documents = self.require_documents(split, 1, "data.pipeline=pack")
        starts, longest = self.cache.document_starts(split), shape.seq_len - 1
        file = token_file(self.cache, split)
        if split == "valid":
            core = _core.document_rows(
                file, _core.RowRule("packed"), shape.seq_len, starts=starts, longest=longest, tail=1, first=0,
                count=documents, wraps=False,
            )  # fmt: skip
            return CoreRows(core, shape, self.cache)
        data = self.config.data
        workers, seed, shuffle = max(1, data.workers), shape.seed % 2**32, data.shuffle != "off"
        key = repr((self.cache.seal, shape.seq_len, shape.batch_size, workers, data.epochs, seed, shuffle))
        index = self.cache.path / f"starts-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        packed = _core.PackedRows(
            file, shape.seq_len, starts=starts, longest=longest, tail=1, batch_size=shape.batch_size,
            workers=workers, epochs=data.epochs, seed=seed, shuffle=shuffle, index=str(index),
        )  # fmt: skip
        return PackedRows(packed, shape, self.cache)


def prepare(config: Config, how: Preparation) -> PackData:
    """Documents with bos and eos, tokenized once."""
    return PackData(config, documents_of(config, how, PackData.frame, PackData.hold_out))
