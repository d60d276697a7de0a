"""The first value at which a model differs from the arrays of another program."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.config.suggest import nearest
from mudd_core.engine.inside import Captured
from mudd_core.engine.model import Model
from mudd_core.fingerprint.compared import Pair
from mudd_core.fingerprint.difference import Difference, measure
from mudd_core.fingerprint.lines import DTYPES, Key, Line

_OF = "gradient of "


def differs_from_arrays(
    model: Model,
    given: Mapping[str, npt.ArrayLike],
    batch: npt.ArrayLike | Mapping[str, npt.ArrayLike],
    ulp: float,
    names: Mapping[str, str] | None,
) -> Difference | None:
    """Return the first difference, as fingerprint.models.first_difference does: weights, values, then gradients.

    given: arrays by name. A name is one of Model.names() or a parameter, or "gradient of " and one of these, if the
    batch has targets: the gradient of the mean loss.
    """
    theirs = _by_our_names(model, given, names or {})
    wanted = [name.removeprefix(_OF) for name in theirs]
    values = [name for name in dict.fromkeys(wanted) if name in model.names()]
    with_gradients = any(name.startswith(_OF) for name in theirs)
    parameters = [name for name in dict.fromkeys(wanted) if name in model.parameters]
    chosen = [*values, *(parameters if with_gradients else [])]
    captured = model.capture(batch, chosen, gradients=with_gradients) if chosen else None
    loss = math.nan if captured is None or captured.loss is None else captured.loss
    order = [*parameters, *values, *(f"{_OF}{name}" for name in reversed(chosen))]
    for name in order:
        if name not in theirs:
            continue
        stage, ours = _ours(model, captured, name)
        found = _measured(name, stage, ours, theirs[name], model.precision, ulp, loss)
        if found.count:
            return found
    return None


def _ours(model: Model, captured: Captured | None, name: str) -> tuple[str, Array]:
    """Return the stage and the array of a weight, a value or a gradient."""
    if name in model.parameters:
        return "state", np.asarray(model.parameters[name], np.float32)
    assert captured is not None
    if name.startswith(_OF):
        return "backward", np.asarray(captured.gradients[name.removeprefix(_OF)])
    return "forward", np.asarray(captured[name])


def _by_our_names(
    model: Model, given: Mapping[str, npt.ArrayLike], names: Mapping[str, str]
) -> dict[str, tuple[str, npt.ArrayLike]]:
    """Return (their name, array) by our name. Raise UserError for an unknown name, or if there is no array."""
    if unknown := sorted(set(names) - set(given)):
        raise UserError(
            f"[diff] names: expected names of b, got '{unknown[0]}'{nearest(unknown[0], list(given))}"
        )
    known = [*model.names(), *model.parameters]
    found: dict[str, tuple[str, npt.ArrayLike]] = {}
    for name, array in given.items():
        ours = names.get(name, name)
        if names and name not in names:
            continue  # an array without a place in the table
        if ours.removeprefix(_OF) not in known:
            raise UserError(
                f"[diff] names: expected names of the model, got '{ours}'{nearest(ours, known)}; "
                "model.names() lists all values"
            )
        found[ours] = (name, array)
    if not found:
        raise UserError("[diff] b: expected at least one array")
    return found


def _measured(
    name: str,
    stage: str,
    ours: Array,
    theirs: tuple[str, npt.ArrayLike],
    precision: str,
    ulp: float,
    loss: float,
) -> Difference:
    their_name, array = theirs[0], np.asarray(theirs[1])
    if array.shape != ours.shape or array.dtype.kind not in "fiu":
        raise UserError(
            f"[diff] {their_name}: expected numbers of shape {ours.shape} as '{name}' has, got {array.dtype} "
            f"{array.shape}; transpose or reshape it first"
        )
    dtype = array.dtype.name if array.dtype.name in DTYPES else "float64"
    key = Key(0, 0, stage, name, "value")
    one, other = (Line(key, "captured", ours.shape, kind, "", ()) for kind in (ours.dtype.name, dtype))
    unit = "bfloat16" if precision == "bf16" else "float32" if dtype == "float64" else dtype
    shown = name if their_name == name else f"{name} ({their_name})"
    return measure(Pair(one, other), ours, array, (loss, math.nan), ulp, unit if ulp else None, title=shown)
