"""Access to the weights of a model by name."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from mudd_core.base.in_use import InUse, alone
from mudd_core.base.types import Array, Float32
from mudd_core.config.suggest import nearest
from mudd_core.engine.argument_check import checked_weight
from mudd_core.engine.frozen import Weights, require_in_range, set_weight
from mudd_core.engine.parameter_tree import Leaf, leaves_of
from mudd_core.graph.parameters import Store

_SHOWN = 4  # errors that a message lists


class Parameters:
    """The part of Model for its weights: reads return read-only views, writes copy the values."""

    store: Store
    in_use: InUse
    _trained: tuple[str, ...]  # names of the parameters that train; empty: all

    @property
    def parameters(self) -> Mapping[str, Float32]:
        """Mapping of names to float32 weights (contracts 13), read-only; write with set_parameter.

        These are views of the master weights. For a weight stored in 16 bits, each access returns an fp32 copy.
        """
        return Weights(self.store, self._trained)

    @alone
    def set_parameter(self, name: str, value: npt.ArrayLike) -> None:
        """Replace the weights of one parameter (an array of the same shape, float32 or 16-bit) and repack them.

        A UserWarning says if values were rounded because a frozen parameter is stored in 16 bits.
        """
        try:
            array = checked_weight(name, value, self.store.describe(name)["shape"])
        except KeyError:
            hint = nearest(name, self.store.names()) or "; print(model.parameters) lists them"
            raise KeyError(f"[model] parameter: there is no '{name}'{hint}") from None
        self._write(name, array, "set_parameter", stacklevel=5)

    def state_dict(self, *, copy: bool = False) -> dict[str, Float32]:
        """Return float32 weights by name: read-only views that change with training, or copies with copy=True.

        A weight stored in 16 bits is always copied.
        """
        return {name: np.array(view) if copy else view for name, view in self.parameters.items()}

    @alone
    def load_state_dict(self, state: Mapping[str, npt.ArrayLike]) -> None:
        """Copy arrays with the names and shapes of state_dict() into all parameters.

        Values are float32, float16 or lists of numbers. Raise ValueError with all missing, unknown and misshapen names,
        TypeError for other types. In both cases nothing is written. A UserWarning says if values were rounded.
        """
        shapes = {name: tuple(self.store.describe(name)["shape"]) for name in self.store.names()}
        arrays = checked_state(state, shapes)
        for name, array in arrays.items():
            require_in_range(self.store, name, array)
        for name, array in arrays.items():
            self._write(name, array, "load_state_dict", stacklevel=5)

    def _write(self, name: str, array: Array, place: str, stacklevel: int) -> None:
        if rounded := set_weight(self.store, name, array):
            kind = self.store.describe(name)["stored"]
            text = f"[{place}] {name}: {rounded:,} of {array.size:,} values were rounded to {kind}"
            warnings.warn(text, stacklevel=stacklevel)

    def _leaves(self) -> dict[str, Leaf]:
        """Return shape, size and trainability of each parameter."""
        return leaves_of(self.store, self._trained)

    @property
    def n_parameters(self) -> int:
        """Number of weights."""
        return int(self.store.elements)

    @alone
    def train_only(self, names: Sequence[str]) -> None:
        """Freeze all other parameters: training graphs planned from now on have no gradients of them
        (train.trainable).
        """
        self.store.train_only(list(names))
        self._trained = () if len(names) == len(self.store.names()) else tuple(names)


def checked_state(
    state: Mapping[str, npt.ArrayLike], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Array]:
    """Return the arrays of a state dict in the order of `shapes`, the map from parameter to shape.

    Raise TypeError unless `state` is a dict of arrays, ValueError with missing and unknown names and wrong shapes.
    """
    if not isinstance(state, Mapping):
        raise TypeError(
            f"[load_state_dict] state: expected a dict of arrays as state_dict() returns it, got a value of type "
            f"{type(state).__name__}"
        )
    faults = [f"'{name}' is missing" for name in shapes if name not in state]
    faults += [f"there is no '{name}'{nearest(name, shapes)}" for name in state if name not in shapes]
    faults += [
        f"'{name}': expected shape {shape}, got {np.shape(state[name])}"
        for name, shape in shapes.items()
        if name in state and np.shape(state[name]) != shape
    ]
    if faults:
        more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise ValueError(f"[load_state_dict] {'; '.join(faults[:_SHOWN])}{more}")
    return {name: checked_weight(name, state[name], shape) for name, shape in shapes.items()}
