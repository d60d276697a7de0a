"""Sizes that the config of every family has. A family that declares one of them again keeps its place in the list."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from mudd_core.config.families.model_config import Decoding, ModelConfig
from mudd_core.config.fields import LONGEST, opt


@dataclass(frozen=True)
class Sizes(Decoding):
    """Vocabulary, length, width and depth."""

    registered_name: ClassVar[str] = (
        ""  # of the very class, if it is a family of the user's (register_family)
    )

    family: str = opt("", "model family")
    vocab_size: int = opt(0, "vocabulary of the embedding and head; 0 = from the tokenizer", "tokens", low=0)
    max_seq_len: int = opt(
        0, "longest sequence the model is built for; 0 = train.seq_len", "tokens", low=0, high=LONGEST
    )
    d_model: int = opt(256, "width of the residual stream", "channels", low=1)
    n_layer: int = opt(6, "number of blocks", "blocks", low=1, high=10_000)

    def __post_init__(self) -> None:
        if name := vars(type(self)).get("registered_name"):
            object.__setattr__(self, "family", name)

    @property
    def n_kv_head(self) -> int:
        """0: as many key and value heads as query heads, unless the family has the field."""
        return 0

    def overridden(self, before: ModelConfig, fields: Collection[str]) -> str | None:
        """What is wrong with overriding these fields of `before`, giving this config; None if nothing."""
        return None


@dataclass(frozen=True)
class HeadSizes(Sizes):
    """Sizes of a model whose key and value heads may be fewer than its query heads."""

    n_head: int = opt(4, "query heads", "heads", low=1)
    n_kv_head: int = opt(0, "key and value heads; 0 = n_head", "heads", low=0)
    d_head: int = opt(0, "width of a head; 0 = d_model / n_head", "channels", low=0)
