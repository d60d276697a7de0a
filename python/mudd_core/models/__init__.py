"""Model families, one module each: a frozen config and `model(config, batch, cache=None) -> Hidden` (contracts 16).

Families of a user are objects in the same registry (config/families/family.py).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial

from mudd_core.base.errors import UserError
from mudd_core.config.families import Family, ModelConfig, family_of
from mudd_core.models.hidden import Batch, Cache, Hidden, Taught

__all__ = ["Batch", "Cache", "Hidden", "Taught", "model_function"]


def model_function(config: ModelConfig) -> Callable[[ModelConfig, Batch, Cache | None], Hidden]:
    """Return the model function of this config's family: from models/<family>.py, or the user's."""
    family = family_of(config)
    if family.given is not None:
        return partial(_own, family)
    found: Callable[[ModelConfig, Batch, Cache | None], Hidden] = importlib.import_module(
        f"mudd_core.models.{family.name}"
    ).model
    return found


def _own(family: Family, config: ModelConfig, batch: Batch, cache: Cache | None = None) -> Hidden:
    """Call the user's model function. Raise UserError unless it returns states and a head of the right shapes."""
    assert family.given is not None
    hidden = family.given(config, batch, cache) if family.decodes else family.given(config, batch)
    place = f"[model.family] {family.name}: model(config, batch)"
    if not isinstance(hidden, Hidden):
        raise UserError(f"{place}: expected mc.Hidden(states, head), got {type(hidden).__name__}")
    ids, width = tuple(batch.inputs.shape), config.d_model
    shapes = (("states", hidden.h, (*ids, width)), ("head", hidden.head, (config.vocab_size, width)))
    for name, value, wanted in shapes:
        if tuple(value.shape) != wanted:
            raise UserError(f"{place}: {name}: expected shape {list(wanted)}, got {list(value.shape)}")
    return hidden
