"""A scope that runs a model at once, keeps named values, and replaces patched ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

import numpy as np

from mudd_core import _core
from mudd_core.base.types import Array
from mudd_core.graph import tape
from mudd_core.graph.recording import Immediate, Like, taped
from mudd_core.graph.tape import Tensor

# A patch maps an array to one of the same shape and dtype.
Patch: TypeAlias = Callable[[Array], Array]


class Watcher(Immediate):
    """Runs a model function on arrays; `kept` has the values whose names are in `keep`.

    patches: by name, functions whose results replace values. gradients: record a tape, also for frozen parameters, and
    compute with every kept value, so that each has a gradient.
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
        """Return True if the tape collects gradients, also of frozen parameters."""
        return self._gradients

    def sow(self, name: str, value: Like) -> Like:
        """Patch and keep the value if its name is listed; return the value to compute with."""
        if name in self._patches:
            value = Tensor(patched(name, self._patches[name], np.asarray(_array(value))))
        if name in self._keep:
            self.kept[name] = self._watched(value)
            return self.kept[name]
        return value

    def _watched(self, value: Like) -> Tensor:
        """Return the value as a tensor; if gradients are wanted, as a copy that only later ops read."""
        tensor = value if isinstance(value, Tensor) else Tensor(_array(value))
        if not self._gradients or tensor.dtype != np.float32:
            return tensor
        made = tape.call_custom(lambda x: np.array(x), lambda d, _: np.array(d), [tensor])
        assert isinstance(made, Tensor)
        return made

    def sow_made(self, name: str, make: Callable[[], Like]) -> None:
        """Compute and keep a value that the fused ops of the model do not store."""
        if name in self._keep:
            self.kept[name] = taped(make())

    def on_path(self, name: str) -> bool:
        """Return True if the value is patched, or its gradient is captured."""
        return name in self._patches or (self._gradients and name in self._keep)

    def gradients(self, *losses: Tensor) -> dict[str, Array]:
        """Return the gradients of the sum of the losses by name: of the kept float32 values and of all parameters."""
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
    """Return the patched value. Raise TypeError or ValueError unless it has the dtype and shape of the original."""
    made = np.asarray(patch(value.copy()))
    if made.shape != value.shape:
        raise ValueError(f"[patch] {name}: expected an array of shape {value.shape}, got {made.shape}")
    if made.dtype.kind not in ("iub" if value.dtype.kind == "i" else "fiub"):
        raise TypeError(f"[patch] {name}: expected {value.dtype}, got {made.dtype}")
    return np.ascontiguousarray(made, value.dtype)
