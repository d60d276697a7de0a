"""What the config of every family has: sizes, rules between fields, and how decoding differs from a full pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from typing import Any


class ModelConfig(Protocol):
    """The frozen dataclass of a family; the names of its fields are the keys `model.<field>`."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    registered_name: ClassVar[str]  # of a family of the user's (register_family); else empty

    @property
    def family(self) -> str:
        """Name of the family, whose module is models/<family>.py."""

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding and of the head."""

    @property
    def max_seq_len(self) -> int:
        """Longest sequence that the model is built for."""

    @property
    def d_model(self) -> int:
        """Width of the residual stream."""

    @property
    def n_layer(self) -> int:
        """Number of blocks."""

    @property
    def n_head(self) -> int:
        """Query heads."""

    @property
    def n_kv_head(self) -> int:
        """Key and value heads; 0 = n_head."""

    @property
    def d_head(self) -> int:
        """Width of a head; 0 = d_model / n_head."""

    @property
    def d_ff(self) -> int:
        """Inner width of the feed-forward part."""

    @property
    def norm_eps(self) -> float:
        """What norms add to the variance or the mean square."""

    @property
    def positions_end(self) -> bool:
        """Whether there are no positions after max_seq_len, because they come from a table."""

    @property
    def decoding_note(self) -> str:
        """Difference between decoding with a KV cache and the full forward pass; empty without one."""

    def __hash__(self) -> int:
        """Of all fields."""

    def matrix_weights(self) -> int:
        """Weights of the blocks that enter a matmul for every token."""

    def settled(self) -> ModelConfig:
        """The same model with zeros resolved, and with fields that have no effect here at their defaults."""

    def faults(self) -> list[str]:
        """Broken rules between fields, one message each."""

    def overridden(self, before: ModelConfig, fields: Collection[str]) -> str | None:
        """What is wrong with overriding these fields of `before`, giving this config; None if nothing."""


class TiedHead(Protocol):
    """A config whose head may share the embedding's matrix."""

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding and of the head."""

    @property
    def d_model(self) -> int:
        """Width of the residual stream."""

    @property
    def tie_embeddings(self) -> bool:
        """Whether the head shares the embedding's matrix."""


class Decoding:
    """How a family decodes unless it says otherwise: as the full pass, at any position."""

    @property
    def positions_end(self) -> bool:
        """Whether there are no positions after max_seq_len, because they come from a table."""
        return False

    @property
    def decoding_note(self) -> str:
        """Difference between decoding with a KV cache and the full forward pass; empty without one."""
        return ""
