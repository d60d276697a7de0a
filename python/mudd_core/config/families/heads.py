"""Sizes that the families share, of the model and its heads, with rules and numbers of weights.

A field that a family declares again keeps its position in the list. FamilyConfig is the base class of the configs of
users' families.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from mudd_core.config.families.model_config import Decoding, ModelConfig
from mudd_core.config.fields import LONGEST, opt, with_defaults

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True)
class Sizes(Decoding):
    """Vocabulary, length, width and depth."""

    registered_name: ClassVar[str] = ""  # of the class itself, if it is a user's family (register_family)

    family: str = opt("", "model family")
    vocab_size: int = opt(0, "vocabulary size of embedding and head; 0 = the tokenizer's", "tokens", low=0)
    max_seq_len: int = opt(
        0, "longest sequence that the model supports; 0 = train.seq_len", "tokens", low=0, high=LONGEST
    )
    d_model: int = opt(256, "width of the residual stream", "channels", low=1)
    n_layer: int = opt(6, "number of blocks", "blocks", low=1, high=10_000)
    ngram_rows: int = opt(
        0,
        "rows of a table in which hashes of the last tokens select rows (docs/maths/ngrams.md); 0 = no table",
        "rows",
        low=0,
        high=2**31 - 1,
    )
    ngram_width: int = opt(64, "width of a row of the table of n-grams", "channels", low=1, high=65_536)
    ngram_orders: str = opt("2,3", "numbers of tokens of the n-grams, from 1 to 3, such as 1,2,3")
    ngram_layers: str = opt(
        "", "layers before which the rows are added to the residual stream, such as 0,2-3; empty = all"
    )
    ngram_end: int = opt(-1, "token that ends a document: no n-gram crosses it; -1 = none", "token", low=-1)

    def __post_init__(self) -> None:
        if name := vars(type(self)).get("registered_name"):
            object.__setattr__(self, "family", name)

    @property
    def n_kv_head(self) -> int:
        """0: as many key and value heads as query heads. Families with grouped heads have a field of this name."""
        return 0

    def overridden(self, before: ModelConfig, fields: Collection[str]) -> str | None:
        """Return the error of changing these fields of `before` to get this config; None if the change is valid."""
        return None


@dataclass(frozen=True)
class HeadSizes(Sizes):
    """Sizes of a model that may have fewer key and value heads than query heads."""

    n_head: int = opt(4, "number of query heads", "heads", low=1)
    n_kv_head: int = opt(0, "number of key and value heads; 0 = n_head", "heads", low=0)
    d_head: int = opt(0, "width of a head; 0 = d_model / n_head", "channels", low=0)


class HasHeads(Protocol):
    """A model config with attention heads."""

    @property
    def d_model(self) -> int:
        """Width of the residual stream."""

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
    def ngram_rows(self) -> int:
        """Rows of the table of n-grams; 0 = no table."""


if TYPE_CHECKING:

    class _HeadsOfDataclass(HasHeads, DataclassInstance, Protocol):
        """The config of a family."""


_M = TypeVar("_M", bound="_HeadsOfDataclass")


def head_width(model: HasHeads) -> int:
    """Return the channels of one head; raise ValueError if heads do not divide the width."""
    if not model.d_head and model.d_model % model.n_head:
        raise ValueError(
            f"[config] model.d_model: expected a multiple of the {model.n_head} heads, got {model.d_model}; "
            "or set model.d_head"
        )
    return model.d_head or model.d_model // model.n_head


def kv_heads(model: HasHeads) -> int:
    """Return the number of key and value heads."""
    return model.n_kv_head or model.n_head


def with_heads(model: _M) -> _M:
    """Return a copy of the config with d_head and n_kv_head resolved if they are 0, and defaults for unused fields."""
    sizes = {"d_head": head_width(model), "n_kv_head": kv_heads(model)}
    names = {field.name for field in dataclasses.fields(model)}
    resolved = dataclasses.replace(model, **{name: size for name, size in sizes.items() if name in names})
    return with_defaults(resolved, unused_fields(model))


def unused_fields(model: HasHeads) -> tuple[str, ...]:
    """Return the fields of a table of n-grams if the model has no table."""
    return () if model.ngram_rows else ("ngram_width", "ngram_orders", "ngram_layers", "ngram_end")


def attention_weights(model: HasHeads) -> int:
    """Return the number of weights in the four projections of one block."""
    width = head_width(model)
    return 2 * model.d_model * width * (model.n_head + kv_heads(model))


def head_faults(model: HasHeads) -> list[str]:
    """Return the broken rules about heads, one message each."""
    faults = []
    if not model.d_head and model.d_model % model.n_head:
        faults.append(
            f"model.d_model: expected a multiple of model.n_head ({model.n_head}), got {model.d_model}; "
            "change one of them or set model.d_head"
        )
    if model.n_head % kv_heads(model):
        faults.append(
            f"model.n_kv_head: expected a divisor of model.n_head ({model.n_head}), got {kv_heads(model)}"
        )
    return faults


def rotary_faults(fraction: float, width: int) -> list[str]:
    """Return the broken rules about the channels of a head that are rotated, one message each."""
    count = fraction * width
    if round(count) >= 2 and round(count) % 2 == 0 and abs(count - round(count)) < 1e-6:
        return []
    if fraction == 1:
        return [f"model.d_head: expected an even width for rotary positions, got {width}"]
    return [f"model.rope_fraction: expected an even number of rotated channels, got {fraction:g} of {width}"]


@dataclass(frozen=True)
class FamilyConfig(HeadSizes):
    """The base class of model sizes: derive from it and add fields with defaults (int, float, bool, str)."""

    family: str = opt("", "model family")
    d_ff: int = opt(704, "inner width of the feed-forward block", "channels", low=1)
    rope_base: float = opt(10000.0, "RoPE theta, the base of the wavelengths", low=1.0)
    norm_eps: float = opt(1e-6, "epsilon that norms add to the mean square", low=0.0)
    tie_embeddings: bool = opt(False, "the head and the embedding share one matrix (tied embeddings)")
    init_std: float = opt(0.02, "standard deviation of the initial matrices", low=0.0, effect="start")

    def matrix_weights(self) -> int:
        """Return 0: the engine counts the matrices that the model declares."""
        return 0

    def settled(self) -> FamilyConfig:
        """Return the same model with d_head and n_kv_head resolved if they are 0."""
        return with_heads(self)

    def faults(self) -> list[str]:
        """Return the broken rules between fields, one message each."""
        return head_faults(self)
