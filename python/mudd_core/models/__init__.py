"""Model families, one module each: a frozen config and `model(config, batch, cache=None) -> Hidden` (contracts 16)."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from mudd_core.config.families import FAMILIES, ModelConfig
from mudd_core.models.hidden import Batch, Cache, Hidden

__all__ = ["Batch", "Cache", "Hidden", "model_function"]


def model_function(config: ModelConfig) -> Callable[[ModelConfig, Batch, Cache | None], Hidden]:
    """Return the model function of this config's family, models/<family>.py."""
    if config.family not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise ValueError(f"[model] family: expected one of {known}, got '{config.family}'")
    found: Callable[[ModelConfig, Batch, Cache | None], Hidden] = importlib.import_module(
        f"mudd_core.models.{config.family}"
    ).model
    return found
