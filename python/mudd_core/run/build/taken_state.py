"""The optimizer state that a run takes over from the weights it starts from (start.keep_optimizer)."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.checkpoint import StatePart, is_weight
from mudd_core.config import ModelConfig
from mudd_core.engine.state import MOMENTS, UPDATES
from mudd_core.models.ngrams import TABLE
from mudd_core.run.build.grown_rows import grown_rows, is_new
from mudd_core.run.build.grown_slots import grown, grows
from mudd_core.run.build.start_source import Source
from mudd_core.run.records.engine import LoopEngine


def take_state(engine: LoopEngine, model: ModelConfig, source: Source, slot_number: int) -> None:
    """Load the optimizer state of the source, with zeros for new slots and for parameters that were frozen."""
    kept = {plane for name in source.tensors if (plane := name.partition("/")[0]) in MOMENTS}
    parts = engine.state_parts(writable=True)
    shapes = {part.name: part.global_shape for part in parts}
    for part in parts:
        plane, _, name = part.name.partition("/")
        is_column = plane == "column_moment" and grows(model, name)
        if is_column and (slot_number >= 0 or source.tensors[name].shape != shapes[name]):
            raise UserError(
                f"[start] {part.name}: it has means over the slots, whose number changes; set "
                "start.keep_optimizer=false"
            )
        # The optional parts are the mean of train.average, which a new run starts again: its updates are others.
        if not is_weight(part.name) and not part.optional:
            whole = _state_of(part, model, source, kept, slot_number)
            part.array[...] = (
                StatePart(part.name, part.global_shape, 0, whole).cut(part.begin, part.end).array
            )


def _state_of(
    part: StatePart, model: ModelConfig, source: Source, kept: Collection[str], slot_number: int
) -> Array:
    """Return the whole tensor that contains a part of the state. kept: the names of the source's moments."""
    name, fresh = part.name, partial(np.zeros, part.global_shape, part.array.dtype)
    plane, _, parameter = name.partition("/")
    if name not in source.tensors:
        # A parameter that was frozen or absent in the source has no moments there, and no decay to make up for.
        frozen = plane in kept and not any(f"{other}/{parameter}" in source.tensors for other in kept)
        if frozen or is_new(parameter, source.tensors):
            count = np.asarray(source.tensors[UPDATES])[0] if plane == "row_update" else 0
            return np.full(part.global_shape, count, part.array.dtype)
        raise UserError(
            f"[start] {source.path}: '{name}' is missing, because the optimizers differ; set "
            "start.keep_optimizer=false"
        )
    old = source.tensors[name]
    if old.dtype != part.array.dtype:
        raise UserError(
            f"[start] {name}: expected {part.array.dtype}, got {old.dtype}, because the optimizers "
            "differ; set start.keep_optimizer=false"
        )
    if grows(model, parameter):
        return grown(name, np.asarray(old), fresh(), slot_number)
    if parameter == TABLE:
        return grown_rows(np.asarray(old), part.global_shape[0])
    if old.shape != part.global_shape:
        raise UserError(f"[start] {name}: expected shape {part.global_shape}, got {old.shape}")
    return np.asarray(old)
