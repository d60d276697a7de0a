"""The validation documents of a stream, which are tokenized into a separate token cache before training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mudd_core.base.types import Json
from mudd_core.data.cache.token_cache import SplitPlace, TokenCache
from mudd_core.data.documents.cache_request import CacheRequest
from mudd_core.data.documents.source import DocumentSource, Frame, TextFiles
from mudd_core.data.rows import Preparation
from mudd_core.data.sources.corpus import Progress, Split
from mudd_core.data.streaming.in_order import InOrder
from mudd_core.data.streaming.processes import Processes
from mudd_core.data.tokenizers.source import TokenizerSource

_NONE = SplitPlace(0, 0, 2, (), 0, 0)


class ValidationCache(TokenCache):
    """A cache of validation documents, with the same interface as a cache of both splits."""

    def document_starts(self, split: Split) -> npt.NDArray[np.uint64]:
        return super().document_starts("train" if split == "valid" else "valid")


@dataclass(frozen=True)
class ChosenTexts:
    """The validation documents from training files: the ones that `processes` select, or the first `count` of them.

    The documents are returned as ids. identity: all values that determine them.
    """

    split: Split
    files: tuple[Path, ...]
    of: TextFiles
    frame: Frame
    processes: Processes
    count: int = 0
    first_file: int = 0  # index of the first of `files` among all training files

    def texts(self) -> Iterator[tuple[int, bytes]]:
        """Yield (0, ids of a document)."""
        source = InOrder(self.processes, range(self.first_file, self.first_file + len(self.files)))
        taken = 0
        while (self.count == 0 or taken < self.count) and (document := source.next_document()) is not None:
            taken += 1
            yield 0, document.ids.astype(np.int64).tobytes()
        source.close()

    def groups(self) -> Sequence[ChosenTexts]:
        """Return the groups of the files; the first documents are one part."""
        if self.count:
            return [self]
        found, at = [], 0
        for group in self.of.groups():
            found.append(replace(self, files=group.files, first_file=at))
            at += len(group.files)
        return found

    def whole_files(self) -> Sequence[Path]:
        """Return the files, or none if the first documents are enough."""
        return () if self.count else self.files

    def identity(self) -> list[Json]:
        """Return the values that decide the documents: the files, the framing and the count."""
        return ["validation", self.of.identity(), self.frame, self.count]


def validation_cache(
    root: Path,
    source: DocumentSource,
    tokenizer: TokenizerSource,
    processes: Processes,
    first: int,
    progress: Progress,
) -> TokenCache:
    """Return the documents of the validation files, else the held-out documents of the training files.

    first: the number of first documents that are held out; 0 if their hash decides.
    """
    assert isinstance(source.train, TextFiles) and isinstance(source.valid, TextFiles)
    none = replace(source.valid, files=())
    if source.valid.files:
        wanted = DocumentSource(replace(source.valid, split="train"), none, source.frame, False)
    else:
        texts = ChosenTexts("train", source.train.files, source.train, source.frame, processes, first)
        wanted = DocumentSource(texts, none, "ids", False)
    try:
        made = CacheRequest(root, wanted, tokenizer, Preparation(progress=progress)).cache()
    finally:
        processes.close()
    members = {name: getattr(made, name) for name in made.__dataclass_fields__}
    return ValidationCache(**{**members, "train": _NONE, "valid": made.train})
