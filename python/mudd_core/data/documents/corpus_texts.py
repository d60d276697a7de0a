"""The documents of a corpus of plain text, as what a token cache is built from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from mudd_core.base.types import Json
from mudd_core.data.cache import SPLITS
from mudd_core.data.corpus import Corpus, Document, Split
from mudd_core.data.documents.source import CacheForm, DocumentSource, grouped


@dataclass(frozen=True)
class CorpusTexts:
    """Documents of a split, which a scan has found and hashed. files: none, since the corpus hash names them."""

    split: Split
    documents: tuple[Document, ...]
    files: tuple[Path, ...] = ()

    def texts(self) -> Iterator[tuple[int, bytes]]:
        """(0, document); UserError if one is no longer what was hashed."""
        return ((0, document.read()) for document in self.documents)

    def groups(self) -> list[CorpusTexts]:
        """Consecutive documents."""
        return [replace(self, documents=group) for group in grouped(self.documents, lambda one: one.size)]

    def whole_files(self) -> list[Path]:
        return []

    def identity(self) -> list[Json]:
        return [document.digest.hex() for document in self.documents]


def corpus_source(corpus: Corpus) -> DocumentSource:
    """The documents of a corpus, each followed by one end-of-document id."""
    form = CacheForm(
        content=corpus.hash,
        documents={split: len(corpus.documents(split)) for split in SPLITS},
        header={"corpus": corpus.name, "files_left_out": corpus.left_out},
        indent=1,
        lists_files=False,
    )
    return DocumentSource(
        CorpusTexts("train", corpus.train), CorpusTexts("valid", corpus.valid), "end", False, form=form
    )
