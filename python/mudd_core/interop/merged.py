"""A model with adapters as one without: what they add is summed in fp32 and rounded once, to the types of the base."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.checkpoint import dtypes
from mudd_core.engine.lora import merged_weights
from mudd_core.engine.model import Model
from mudd_core.interop.hf import SYSTEM
from mudd_core.interop.hf_settings import HfModel
from mudd_core.interop.imported import imported_types
from mudd_core.run.store.run_folder import RunFolder


def merged_model(model: Model) -> Model:
    """The model with scale A B in its weights, in fp32."""
    plain = Model(model.config, initialize=False, precision="fp32")
    for name, value in merged_weights(model):
        plain.set_parameter(name, value)
    return plain


def round_weights(model: Model, kinds: Mapping[str, str]) -> None:
    """Give the weights, which stay float32, numbers that these types have. kinds: by the names of transformers.

    UserError for a weight that would become infinite.
    """
    assert isinstance(model.config, HfModel)
    for entry in SYSTEM.entries(model.config, {}):
        kind, value = kinds[entry.theirs], model.parameters[entry.ours]
        if kind == "F32" or entry.part:  # one type for all matrices of a stack
            continue
        near = dtypes.as_float32(dtypes.rounded(value, kind))
        if bad := np.flatnonzero(np.isfinite(value) & ~np.isfinite(near)).tolist():
            raise UserError(
                f"[export] --merged: expected weights that {kind}, the type of the base, can hold, got "
                f"{value.reshape(-1)[bad[0]]:g} in '{entry.theirs}'; --adapter keeps them apart"
            )
        model.set_parameter(entry.ours, near)


def base_types(run: RunFolder, model: Model) -> dict[str, str]:
    """The type of each tensor of transformers' folder, as the base had it; F32 where none is known.

    run: of the files that came with the base.
    """
    if not isinstance(model.config, HfModel):
        return {}
    names, known = SYSTEM.shapes(model.config, {}), imported_types(run)
    bare = {
        name.removeprefix("transformer."): kind for name, kind in known.items()
    }  # both spellings of GPT-2
    kinds = list(known.values())
    usual = max(sorted(set(kinds)), key=kinds.count, default="F32")
    return {name: bare.get(name.removeprefix("transformer."), usual) for name in names}
