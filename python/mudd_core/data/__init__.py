"""Prepare training data: corpora, tokenizers, token caches and batches."""

from __future__ import annotations

from mudd_core.data.batcher import Batcher
from mudd_core.data.cache.token_cache import TokenCache, open_cache
from mudd_core.data.documents.plain_text import prepare
from mudd_core.data.pipelines import register

__all__ = ["Batcher", "TokenCache", "open_cache", "prepare", "register"]


def __dir__() -> list[str]:
    return __all__
