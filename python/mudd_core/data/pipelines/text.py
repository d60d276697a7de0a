"""The pipeline `text`: windows over documents of text that follow one another."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.data.cache import TokenCache
from mudd_core.data.corpus import Split
from mudd_core.data.loader import Batcher
from mudd_core.data.pipelines.pipeline import RowShape
from mudd_core.data.tokenize import Tokenizer


@dataclass(frozen=True)
class TextData:
    """A token cache as data of a run."""

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
    def tokenizer(self) -> Tokenizer:
        return self.cache.tokenizer

    @property
    def valid_bytes_per_target(self) -> float:
        """Bytes of validation text over its predictions; UserError if there are none."""
        n_targets = self.cache.n_valid_tokens - 1
        if n_targets < 1:
            raise UserError(
                f"[data] the validation split has {max(0, n_targets + 1)} tokens and needs 2; use more text"
            )
        return self.cache.valid_bytes / n_targets

    @property
    def train_tokens(self) -> int:
        return self.cache.n_train_tokens

    @property
    def documents(self) -> tuple[int, int]:
        return self.cache.train.documents, self.cache.valid.documents

    def rows(self, split: Split, shape: RowShape) -> Batcher:
        return Batcher(self.cache, split, shape.seq_len, shape.seed)

    def describe(self) -> list[str]:
        """Cache, corpus, tokenizer and the two splits."""
        cache = self.cache
        lines = [
            f"cache       {cache.path}",
            f"corpus      SHA-256 {cache.corpus_hash}",
            f"tokenizer   {cache.tokenizer_name}, {cache.vocab_size} ids",
        ]
        for name, place in (("train", cache.train), ("valid", cache.valid)):
            ratio = place.text_bytes / max(1, place.count)
            lines.append(
                f"{name:<11} {place.documents:,} documents, {place.text_bytes:,} bytes, {place.count:,} tokens "
                f"({ratio:.2f} bytes a token)"
            )
        return lines
