"""The check of a state dict: the names and shapes of all its arrays, in one message."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from mudd_core.base.types import Array
from mudd_core.config.suggest import nearest
from mudd_core.engine.argument_check import checked_weight

_SHOWN = 4  # faults in a message


def checked_state(
    state: Mapping[str, npt.ArrayLike], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Array]:
    """The arrays of a state dict in the order of `shapes`, which has the name and shape of every parameter.

    TypeError for what is no dict of arrays, ValueError that lists missing and unknown names and wrong shapes.
    """
    if not isinstance(state, Mapping):
        raise TypeError(
            f"[load_state_dict] state: expected a dict of arrays as state_dict() gives it, got a value of type "
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
