"""Adapters on a module of transformers that contains several layers of mudd_core, such as the q, k and v of c_attn.

PEFT has one adapter for the whole module. With adapters of rank r on k of its layers, its rank is k r: the A are
stacked, and B has a block for each layer. An adapter that PEFT trained is read as one of each layer with the same A.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from mudd_core.base.types import Float32, Json, JsonObject
from mudd_core.interop.peft_names import Module

Factors = tuple[Float32, Float32]  # A [in, rank] and B [rank, out]


def patterns(counts: Mapping[str, int], rank: int, alpha: float) -> JsonObject:
    """Return rank_pattern and alpha_pattern for modules with several adapted layers; empty if there are none.

    counts: the number of adapted layers of each module. rank, alpha: of a layer.
    """
    several = {name: count for name, count in counts.items() if count > 1}
    if not several:
        return {}
    return {
        "alpha_pattern": {name: short(count * alpha) for name, count in several.items()},
        "rank_pattern": {name: count * rank for name, count in several.items()},
    }


def short(value: float) -> Json:
    """Return an integer for a whole number."""
    return int(value) if value == int(value) else value


def without_patterns(
    settings: JsonObject, modules: Mapping[str, Module]
) -> tuple[JsonObject, dict[str, int]]:
    """Return the settings without the patterns that `patterns` writes, and the ranks in them; others are kept."""
    ranks, rank, alpha = (settings.get(name) for name in ("rank_pattern", "r", "lora_alpha"))
    if (
        not ranks
        or not isinstance(ranks, dict)
        or not isinstance(rank, int)
        or not isinstance(alpha, int | float)
    ):
        return settings, {}
    counts = {}
    for name, value in ranks.items():
        most = len(modules[name].layers) if name in modules else 0
        counts[name] = next((count for count in range(2, most + 1) if value == count * rank), 0)
    given = {"alpha_pattern": settings.get("alpha_pattern"), "rank_pattern": ranks}
    if not all(counts.values()) or not abs(alpha) < 1e300 or given != patterns(counts, rank, alpha):
        return settings, {}
    rest = {name: value for name, value in settings.items() if name not in given}
    return rest, {name: count * rank for name, count in counts.items()}


def joined(module: Module, layers: Mapping[str, Factors]) -> Factors:
    """Return A [in, k rank] and B [k rank, out] of the module for the factors of k of its layers."""
    blocks = [(rows, *layers[name]) for name, rows in _rows(module).items() if name in layers]
    rank = blocks[0][1].shape[1]
    b = np.zeros((len(blocks) * rank, module.width), np.float32)
    for n, (rows, _, block) in enumerate(blocks):
        b[n * rank : (n + 1) * rank, rows] = block
    return np.concatenate([a for _, a, _ in blocks], axis=1), b


def separated(module: Module, a: Float32, b: Float32, rank: int) -> dict[str, Factors] | None:
    """Return the factors of each layer, of this rank, for A [in, R] and B [R, out] of the module.

    None if the layers need a higher rank.
    """
    rows = _rows(module)
    if a.shape[1] == rank:
        return {name: (a, np.ascontiguousarray(b[:, at])) for name, at in rows.items()}
    blocks = [slice(start, start + rank) for start in range(0, a.shape[1], rank)]
    found: dict[str, Factors] = {}
    for block in blocks:
        # Blocks are in the order of the layers; a block of zeros, before any training, fits the next one.
        left = [
            name for name in rows if not found or list(rows).index(name) > list(rows).index(list(found)[-1])
        ]
        fits = [name for name in left if not np.delete(b[block], rows[name], axis=1).any()]
        if not fits:
            return None
        found[fits[0]] = (np.ascontiguousarray(a[:, block]), np.ascontiguousarray(b[block][:, rows[fits[0]]]))
    return found


def _rows(module: Module) -> dict[str, npt.NDArray[np.int64]]:
    """Return the outputs of the module that each of its layers computes, in the layer's order."""
    numbers = np.arange(module.width)
    found = {}
    for layer, entry in zip(module.layers, module.entries, strict=True):
        if module.fan_in_first:
            found[layer] = numbers[entry.index[-1]].reshape(-1)
        else:
            view = (module.width,) if entry.view is None else entry.view[:-1]
            found[layer] = numbers.reshape(*view, 1)[entry.index].reshape(-1)
    return found
