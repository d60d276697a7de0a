"""The first checkpoint of an imported run: tensors that are converted one at a time, when they are written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mudd_core.checkpoint import StatePart
from mudd_core.checkpoint.stored import StoredTensor, float32_of
from mudd_core.config import Config
from mudd_core.engine.engine import Engine
from mudd_core.engine.frozen import NARROW, frozen_types, is_exact, stored_as
from mudd_core.engine.model import Model
from mudd_core.run.build.stored_types import header_types


def narrow_kind(source: Path) -> str:
    """The 16-bit type of all the matrices in the files, by its name in safetensors; empty where there is none."""
    kinds = set(header_types(source).values())
    kind = kinds.pop() if len(kinds) == 1 else ""
    return kind if kind in NARROW else ""


def fits(tensor: StoredTensor, kind: str) -> bool:
    """Whether the converted values fit into a 16-bit type as they are; reads them, and so finds those that are bad."""
    values = np.asarray(tensor)
    return bool(kind) and is_exact(values, kind)


def first_parts(
    config: Config, weights: Mapping[str, StoredTensor], found: Mapping[str, str]
) -> list[StatePart]:
    """The state to save, one tensor at a time, its frozen matrices in the types of train.frozen_dtype.

    found: names of the weights that fit into a 16-bit type as they are, and the type.
    """
    model = Model(config.model, booked_only=True)
    types = frozen_types(model.store, config, found, resumed=False)
    if types:
        model = Model(config.model, booked_only=True, stored=types)
    stored = {name: stored_as(model.store, name, weights[name]) for name in model.store.names()}
    inexact = [name for name, kind in types.items() if NARROW.get(found.get(name, "")) != kind]
    if rounded := sum(_changed(weights[name], stored[name]) for name in inexact):
        print(
            f"note: {rounded:,} frozen weights were rounded (train.frozen_dtype={config.train.frozen_dtype})"
        )
    return Engine(config, model).first_parts(stored)


def _changed(before: StoredTensor, after: StoredTensor) -> int:
    """How many of the numbers differ."""
    return int(np.count_nonzero(np.asarray(before) != float32_of(after)))
