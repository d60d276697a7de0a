"""The types of a base, and weights that are rounded to them once, after what adapters add was summed in fp32."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Float32
from mudd_core.checkpoint import dtypes
from mudd_core.checkpoint.stored import StoredTensor, float32_of, made_tensor
from mudd_core.config import ModelConfig
from mudd_core.interop.hf import SYSTEM
from mudd_core.interop.hf_rows import HfModel
from mudd_core.interop.imported import imported_types
from mudd_core.run.store.run_folder import RunFolder


def rounded_weights(
    model: ModelConfig, weights: Mapping[str, StoredTensor], kinds: Mapping[str, str]
) -> dict[str, StoredTensor]:
    """The weights that have another type than float32, with the numbers of that type, still float32.

    kinds: by the names of transformers. The numbers are made when they are asked for: UserError for a weight that would
    become infinite.
    """
    assert isinstance(model, HfModel)
    rounded = {}
    for entry in SYSTEM.entries(model, {}):
        if kinds[entry.theirs] != "F32" and not entry.part:  # one type for all matrices of a stack
            weight = weights[entry.ours]
            make = partial(_near, weight, kinds[entry.theirs], entry.theirs)
            rounded[entry.ours] = made_tensor(weight.shape, np.float32, make)
    return rounded


def _near(weight: StoredTensor, kind: str, name: str) -> Float32:
    value = np.ascontiguousarray(float32_of(weight))
    near = np.empty_like(value)
    for begin in range(0, value.size, dtypes.AT_ONCE):
        part = slice(begin, begin + dtypes.AT_ONCE)
        given, found = value.reshape(-1)[part], near.reshape(-1)[part]
        found[:] = dtypes.as_float32(dtypes.rounded(given, kind))
        if bad := np.flatnonzero(np.isfinite(given) & ~np.isfinite(found)).tolist():
            raise UserError(
                f"[export] --merged: expected weights that {kind}, the type of the base, can hold, got "
                f"{given[bad[0]]:g} in '{name}'; --adapter keeps them apart"
            )
    return near


def base_types(run: RunFolder, model: ModelConfig) -> dict[str, str]:
    """The type of each tensor of transformers' folder, as the base had it; F32 where none is known.

    run: of the files that came with the base.
    """
    if not isinstance(model, HfModel):
        return {}
    names, known = SYSTEM.shapes(model, {}), imported_types(run)
    bare = {_bare(name): kind for name, kind in known.items()}
    kinds = list(known.values())
    usual = max(sorted(set(kinds)), key=kinds.count, default="F32")
    return {name: bare.get(_bare(name), usual) for name in names}


def _bare(name: str) -> str:
    """A name in the spelling without prefix, in which some folders have it."""
    return name.removeprefix("transformer.").removeprefix("model.")
