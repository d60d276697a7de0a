"""What data of a run take from their token cache, whatever the rows."""

from __future__ import annotations

from mudd_core.data.cache import TokenCache
from mudd_core.data.tokenize import Tokenizer


class Cached:
    """A part of the data of `text` and of the pipelines of documents; see pipeline.Prepared."""

    cache: TokenCache

    @property
    def fingerprint(self) -> str:
        return self.cache.fingerprint

    @property
    def seal(self) -> str | None:
        return self.cache.seal

    @property
    def vocab_size(self) -> int:
        return self.cache.vocab_size

    @property
    def tokenizer(self) -> Tokenizer | None:
        return self.cache.tokenizer

    @property
    def train_tokens(self) -> int:
        return self.cache.n_train_tokens

    @property
    def documents(self) -> tuple[int, int]:
        """Of training and of validation."""
        return self.cache.train.documents, self.cache.valid.documents
