"""The results of a random case: outputs and gradients of an op, or of another part with kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

import level_parts
from level_cases import OPS, Array
from level_draw import Draw
from mudd_core import _core, ops
from mudd_core.graph import scopes

_LOSSES = {spec.name for spec in _core.op_specs() if spec.outputs[0].loss}
_UPDATES = {spec.name for spec in _core.optimizer_specs()}
CASES = (*OPS, *level_parts.PARTS)


def rows_of(case: str, inputs: Sequence[Array | None]) -> Array:
    """Return the input whose first axis is the batch."""
    order = inputs[::-1] if case == "depth_mix" else (inputs[0], inputs[2]) if case == "embedding" else inputs
    return next(array for array in order if array is not None)


def results(case: str, draw: Draw) -> dict[str, Array | None]:
    """Return the arrays of a case by name."""
    if case in level_parts.PARTS:
        return level_parts.PARTS[case](draw)
    inputs, options = OPS[case](draw)
    samples = rows_of(case, inputs).shape[0]
    shards = draw.pick([1] if case in _UPDATES else [count for count in (1, 2, 4) if samples % count == 0])
    with scopes.shards(samples, shards):
        y = getattr(ops, case)(*inputs, **options)
        outputs = y if isinstance(y, tuple) else (y,)
        dy = [None if o.dtype == np.int32 else draw.array(*o.shape) for o in outputs]
        gradients = getattr(ops, f"{case}_backward")(None if case in _LOSSES else dy, *inputs, **options)
    named: dict[str, Array | None] = {f"output {i}": o for i, o in enumerate(outputs)}
    return named | {f"gradient of input {i}": g for i, g in enumerate(gradients)}


def hashed(array: Array | None) -> str:
    """Return a hash of the bits; all NaN hash alike, because their sign and payload depend on the CPU."""
    if array is None:
        return "none"
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def hashes(case: str, picks: Sequence[int]) -> dict[str, str]:
    """Return the hashes of the arrays of a case by name."""
    return {name: hashed(array) for name, array in results(case, Draw.replay(picks)).items()}
