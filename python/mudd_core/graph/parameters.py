"""The parameters of a model: their declarations, and low-rank adapters of linear layers with frozen weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NotRequired, TypedDict

from mudd_core import _core
from mudd_core.base.types import Array


@dataclass(frozen=True)
class Adapters:
    """The adapters of a model. names: the adapted linear layers. scale: the factor of an adapter's output.

    initial: if True, frozen copies of the initial values are parameters too (lora.init=pissa).
    """

    names: Collection[str] = ()
    rank: int = 0
    scale: float = 1.0
    dropout: float = 0.0
    initial: bool = False


NONE = Adapters()


class Store(_core.ParamStore):
    """All parameters of a model, and its adapters. lent: the arrays that contain some of the parameters."""

    adapters: Adapters = NONE
    lent: Mapping[str, Array] = {}


def adapter_of(store: _core.ParamStore, name: str) -> Adapters | None:
    """Return the adapter of the linear layer of this name, None if it has none."""
    return store.adapters if isinstance(store, Store) and name in store.adapters.names else None


class Declaration(TypedDict):
    """The arguments by which a model function declares a parameter, besides name and shape (contracts 11)."""

    role: str
    fan_in: int
    fan_out: int
    init: str
    init_scale: NotRequired[float]
    trainable: NotRequired[bool]
    stored: NotRequired[str]


_NEEDED = ("role", "fan_in", "fan_out", "init")


def require_declaration(name: str, given: Collection[str]) -> None:
    """Raise TypeError unless the arguments of nn.parameter match Declaration."""
    wrong = [f"no argument {key}=" for key in given if key not in Declaration.__annotations__]
    wrong += [f"{key}=, which is missing" for key in _NEEDED if key not in given]
    if wrong:
        raise TypeError(
            f"[nn.parameter] {name}: expected {wrong[0]}; type nn.parameter(name, shape, "
            'role="matrix", fan_in=..., fan_out=..., init="normal", init_scale=0.02)'
        )
