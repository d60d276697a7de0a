"""The interface of every family's config: sizes, rules between fields, and differences of decoding from a full pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from typing import Any


class ModelConfig(Protocol):
    """The frozen dataclass of a family; the names of its fields are the keys `model.<field>`."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    registered_name: ClassVar[str]  # of a user's family (register_family); else empty

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
    def ngram_rows(self) -> int:
        """Rows of the table of n-grams; 0 = no table."""

    @property
    def ngram_width(self) -> int:
        """Width of a row of the table."""

    @property
    def ngram_orders(self) -> str:
        """Numbers of tokens of the n-grams, such as 2,3."""

    @property
    def ngram_layers(self) -> str:
        """Layers that read the rows, as spans; empty = all."""

    @property
    def ngram_end(self) -> int:
        """Token that ends a document; -1 = none."""

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
        """Epsilon that norms add to the variance or the mean square."""

    @property
    def positions_end(self) -> bool:
        """True if positions end at max_seq_len, because they come from a table."""

    @property
    def decoding_note(self) -> str:
        """Difference between decoding with a KV cache and the full forward pass; empty without one."""

    def __hash__(self) -> int:
        """Return a hash of all fields."""

    def matrix_weights(self) -> int:
        """Return the number of weights in the blocks that enter a matmul for every token."""

    def settled(self) -> ModelConfig:
        """Return the config with derived values for fields of 0 (automatic), and defaults for fields without effect."""

    def faults(self) -> list[str]:
        """Return the broken rules between fields, one message each."""

    def overridden(self, before: ModelConfig, fields: Collection[str]) -> str | None:
        """Return the error of changing these fields of `before` to get this config; None if the change is valid."""


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
        """True if the head shares the embedding's matrix."""


class Decoding:
    """The default decoding of a family: it equals the full pass, and works at any position."""

    @property
    def positions_end(self) -> bool:
        """True if positions end at max_seq_len, because they come from a table."""
        return False

    @property
    def decoding_note(self) -> str:
        """Difference between decoding with a KV cache and the full forward pass; empty without one."""
        return ""
