"""The families: one page each, a frozen config and `model(config, batch, cache=None) -> Hidden` (contracts 16)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mudd_core.models.hidden import Batch, Cache, Hidden

__all__ = ["Batch", "Cache", "Hidden", "model_function"]


def model_function(config: Any) -> Callable[[Any, Batch, Cache | None], Hidden]:
    """The page of this config's family."""
    from mudd_core.models import gpt2, transformer_pp

    pages: dict[str, Any] = {"transformer_pp": transformer_pp.model, "gpt2": gpt2.model}
    if config.family not in pages:
        raise ValueError(f"[model] family: expected one of {', '.join(sorted(pages))}, got '{config.family}'")
    page: Callable[[Any, Batch, Cache | None], Hidden] = pages[config.family]
    return page
