"""Low-rank adapters beside the frozen matrices of a model: which linear layers have one, and how it is computed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mudd_core import _core
from mudd_core.base.types import Array


@dataclass(frozen=True)
class Adapters:
    """The adapters of a model. names: of the linear layers that have one; scale: of what it adds.

    initial: whether frozen copies of the initial values belong to the parameters (lora.init=pissa).
    """

    names: Collection[str] = ()
    rank: int = 0
    scale: float = 1.0
    dropout: float = 0.0
    initial: bool = False


NONE = Adapters()


class Store(_core.ParamStore):
    """All parameters of a model, and which of them are adapters. lent: arrays that some of them lie in."""

    adapters: Adapters = NONE
    lent: Mapping[str, Array] = {}


def adapter_of(store: _core.ParamStore, name: str) -> Adapters | None:
    """How the linear layer of this name is adapted in the model of a store; None where it is not."""
    return store.adapters if isinstance(store, Store) and name in store.adapters.names else None
