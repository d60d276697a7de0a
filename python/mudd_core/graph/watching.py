"""A scope that looks into a model while it runs at once: it keeps values by name, or puts others in their place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

import numpy as np

from mudd_core import _core
from mudd_core.base.types import Array
from mudd_core.graph import tape
from mudd_core.graph.recording import Immediate, Like, taped
from mudd_core.graph.tape import Tensor

# What a patch is: an array to one of the same shape and dtype.
Patch: TypeAlias = Callable[[Array], Array]


class Watcher(Immediate):
    """Runs a model function on arrays; `kept` has the values of the names in `keep`.

    patches: functions whose results take the place of values, by name. gradients: record a tape, also for parameters
    that are frozen, and compute every kept value in the model's path, so that it has a gradient.
    """

    def __init__(
        self,
        store: _core.ParamStore,
        keep: Collection[str] = (),
        patches: Mapping[str, Patch] | None = None,
        gradients: bool = False,
    ) -> None:
        super().__init__(store)
        self.kept: dict[str, Tensor] = {}
        self._keep, self._patches, self._gradients = frozenset(keep), patches or {}, gradients

    def wants_gradient(self, trainable: bool) -> bool:
        """Whether the tape collects gradients, of frozen parameters too."""
        return self._gradients

    def sow(self, name: str, value: Like) -> Like:
        """Keep the value, or what a patch makes of it, if it is captured; return it."""
        if name in self._patches:
            value = Tensor(patched(name, self._patches[name], np.asarray(_array(value))))
        if name in self._keep:
            self.kept[name] = self._watched(value)
            return self.kept[name]
        return value

    def _watched(self, value: Like) -> Tensor:
        """The value as a tensor; with gradients one that only the ops after this point read."""
        tensor = value if isinstance(value, Tensor) else Tensor(_array(value))
        if not self._gradients or tensor.dtype != np.float32:
            return tensor
        made = tape.call_custom(lambda x: np.array(x), lambda d, _: np.array(d), [tensor])
        assert isinstance(made, Tensor)
        return made

    def sow_made(self, name: str, make: Callable[[], Like]) -> None:
        """Make and keep a value that the model's path does not have."""
        if name in self._keep:
            self.kept[name] = taped(make())

    def on_path(self, name: str) -> bool:
        """Whether the value is patched, or its gradient captured."""
        return name in self._patches or (self._gradients and name in self._keep)

    def gradients(self, *losses: Tensor) -> dict[str, Array]:
        """The gradients of the kept values of float32 and of all parameters: of the sum of the losses, by name."""
        names = [name for name, value in self.kept.items() if value.dtype == np.float32]
        found = tape.backward(*losses, watched=[self.kept[name] for name in names])
        values = {name: self.kept[name].shape for name in names}
        made = {
            name: np.zeros(values[name], np.float32) if one is None else one
            for name, one in zip(names, found, strict=True)
        }
        return made | {
            name: np.zeros(leaf.shape, np.float32) if leaf.grad is None else leaf.grad
            for name, leaf in self.leaves.items()
        }


def _array(value: Like) -> Array:
    return value if isinstance(value, np.ndarray) else taped(value).data


def patched(name: str, patch: Patch, value: Array) -> Array:
    """What a patch makes of a value; TypeError or ValueError for something that cannot take its place."""
    made = np.asarray(patch(value.copy()))
    if made.shape != value.shape:
        raise ValueError(f"[patch] {name}: expected an array of shape {value.shape}, got {made.shape}")
    if made.dtype.kind not in ("iub" if value.dtype.kind == "i" else "fiub"):
        raise TypeError(f"[patch] {name}: expected {value.dtype}, got {made.dtype}")
    return np.ascontiguousarray(made, value.dtype)
