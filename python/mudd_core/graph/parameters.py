"""The parameters of a model: their declarations, and low-rank adapters of linear layers with frozen weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NotRequired, TypedDict

import numpy.typing as npt

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
    """All parameters of a model, and its adapters. lent: the arrays that contain some of the parameters.

    changes: the number of writes to weights so far; keys and values of a KV cache are valid while it is the same.
    """

    adapters: Adapters = NONE
    lent: Mapping[str, Array] = {}
    changes: int = 0

    def set(self, plane: int, name: str, array: npt.ArrayLike) -> None:
        """Write the values of one parameter into a plane, in the type of the plane."""
        self.changes += 1
        super().set(plane, name, array)

    def set_values(self, name: str, array: npt.ArrayLike) -> int:
        """Write fp32 values into a weight stored in any type; return the count of rounded values."""
        self.changes += 1
        return super().set_values(name, array)

    def repack(self) -> None:
        """Write all packed copies again, after a write to the memory of the weights."""
        self.changes += 1
        super().repack()


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
