"""What the families share about heads: the zeros of d_head and n_kv_head resolved, rules, weights.

FamilyConfig is the base of the config of a family of the user's own.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from mudd_core.config.families.sizes import HeadSizes
from mudd_core.config.fields import opt

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


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


if TYPE_CHECKING:

    class _HeadsOfDataclass(HasHeads, DataclassInstance, Protocol):
        """The config of a family."""


_M = TypeVar("_M", bound="_HeadsOfDataclass")


def head_width(model: HasHeads) -> int:
    """Channels of one head; ValueError where heads do not divide the width."""
    if not model.d_head and model.d_model % model.n_head:
        raise ValueError(
            f"[config] model.d_model: expected a multiple of the {model.n_head} heads, got {model.d_model}; "
            "or set model.d_head"
        )
    return model.d_head or model.d_model // model.n_head


def kv_heads(model: HasHeads) -> int:
    """Key and value heads."""
    return model.n_kv_head or model.n_head


def with_heads(model: _M) -> _M:
    """A copy of the config with the zeros of d_head and n_kv_head resolved."""
    sizes = {"d_head": head_width(model), "n_kv_head": kv_heads(model)}
    names = {field.name for field in dataclasses.fields(model)}
    return dataclasses.replace(model, **{name: size for name, size in sizes.items() if name in names})


def attention_weights(model: HasHeads) -> int:
    """Weights of the four projections of one block."""
    width = head_width(model)
    return 2 * model.d_model * width * (model.n_head + kv_heads(model))


def head_faults(model: HasHeads) -> list[str]:
    """Broken rules about heads, one message each."""
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


@dataclass(frozen=True)
class FamilyConfig(HeadSizes):
    """Sizes of a model; derive from it, add fields with defaults (int, float, bool, str), override what differs."""

    family: str = opt("", "model family")
    d_ff: int = opt(704, "inner width of the feed-forward block", "channels", low=1)
    rope_base: float = opt(10000.0, "base of the rotary wavelengths", low=1.0)
    norm_eps: float = opt(1e-6, "added to the mean square in norms", low=0.0)
    tie_embeddings: bool = opt(False, "the head shares the embedding's matrix")
    init_std: float = opt(0.02, "standard deviation of the initial matrices", low=0.0, effect="start")

    def matrix_weights(self) -> int:
        """0: the engine counts the matrices that the model declares."""
        return 0

    def settled(self) -> FamilyConfig:
        """The same model with the zeros of d_head and n_kv_head resolved."""
        return with_heads(self)

    def faults(self) -> list[str]:
        """Broken rules between fields, one message each."""
        return head_faults(self)
