"""Stacked layers and batch names, which the programs derived from MaxText share.

Layers have separate names (`decoder/layers_<n>/...`), or they are stacked along an axis of every tensor
(`decoder/layers/...`, scan_layers). The other modules describe the first form; this one converts between the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from mudd_core.base.types import Array
from mudd_core.interop.layout import Entry
from mudd_core.interop.settings import Reader, Settings, layers_in
from mudd_core.interop.system import Shapes, as_ids

_NAMES = {"inputs_position": "positions", "inputs_segmentation": "segments"}
_STACK, _NAME = "decoder/layers/", re.compile(r"^decoder/layers_(\d+)/")


def apart(system: str, config: Settings, shapes: Shapes) -> Shapes:
    """Return the shapes with a name for each layer, stacked or not; add scan_layers to the settings if it is missing.

    Raise ValueError if the settings contradict the names.
    """
    stacked = any(name.startswith(_STACK) for name in shapes)
    given = Reader(system, config).flag("scan_layers", stacked)
    if config.get("scan_layers") is None and isinstance(config, dict):
        config["scan_layers"] = stacked
    elif given != stacked:
        how = "stacked ('decoder/layers/')" if stacked else "under a name each ('decoder/layers_0/')"
        raise ValueError(f"[{system}] scan_layers: {given}, but the layers of the weights are {how}")
    axis = Reader(system, config).whole("param_scan_axis", 1, low=0, high=3)
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        if not name.startswith(_STACK) or len(shape) <= axis:
            found[name] = shape
            continue
        for layer in range(layers_in(system, shape[axis])):
            found[_named(name, layer)] = (*shape[:axis], *shape[axis + 1 :])
    return found


def as_they_lie(config: Settings, entries: Iterable[Entry]) -> list[Entry]:
    """Convert entries with a name for each layer to the layout that scan_layers selects."""
    return [_stacked(entry, _axis(config)) for entry in entries] if _scanned(config) else list(entries)


def shapes_as_they_lie(config: Settings, shapes: Shapes) -> Shapes:
    """Convert shapes with a name for each layer to the layout that scan_layers selects."""
    if not _scanned(config):
        return shapes
    axis, layers = _axis(config), 1 + max(int(match[1]) for match in map(_NAME.match, shapes) if match)
    return {
        _NAME.sub(_STACK, name): (*shape[:axis], layers, *shape[axis:]) if _NAME.match(name) else shape
        for name, shape in shapes.items()
    }


def named(system: str, batch: Mapping[str, npt.ArrayLike], *, zero_counts: bool = True) -> dict[str, Array]:
    """Return inputs, targets, positions and segments of a batch with the program's names or mudd_core's.

    Targets of segment 0 (targets_segmentation) are ignored. Without targets_segmentation, targets with id 0 are ignored
    unless zero_counts is set.
    """
    known = {"inputs", "targets", "targets_segmentation", "targets_position", *_NAMES, *_NAMES.values()}
    unknown = sorted(set(batch) - known - {"key_mask"})
    if unknown:
        raise ValueError(f"[{system}] batch: expected {', '.join(sorted(known))}, got '{unknown[0]}'")
    arrays = {_NAMES.get(name, name): as_ids(value, name) for name, value in batch.items()}
    arrays.pop("targets_position", None)
    counted = arrays.pop("targets_segmentation", None)
    if counted is None and not zero_counts:
        counted = arrays.get("targets")
    if counted is not None and "targets" in arrays:
        arrays["targets"] = np.where(counted != 0, arrays["targets"], -1).astype(np.int32)
    return arrays


def shifted(batch: Mapping[str, npt.ArrayLike], system: str, *, zero_counts: bool) -> dict[str, Array]:
    """Return inputs and shifted targets for `tokens` [B, T + 1].

    For other batches call `named`, also for zero_counts.
    """
    if "inputs" in batch:
        return named(system, batch, zero_counts=zero_counts)
    if set(batch) != {"tokens"}:
        raise ValueError(f"[{system}] batch: expected tokens, got {', '.join(sorted(batch))}")
    tokens = as_ids(batch["tokens"], "tokens")
    if tokens.ndim != 2 or tokens.shape[1] < 2:
        raise ValueError(
            f"[{system}] tokens: expected [B, T + 1] with T at least 1, got shape {tokens.shape}"
        )
    targets = tokens[:, 1:] if zero_counts else np.where(tokens[:, 1:] == 0, -1, tokens[:, 1:])
    return {
        "inputs": np.ascontiguousarray(tokens[:, :-1]),
        "targets": np.ascontiguousarray(targets, np.int32),
    }


def _scanned(config: Settings) -> bool:
    return bool(config.get("scan_layers", True))


def _axis(config: Settings) -> int:
    return Reader("maxtext", config).whole("param_scan_axis", 1, low=0, high=3)


def _named(name: str, layer: int) -> str:
    return name.replace(_STACK, f"decoder/layers_{layer}/", 1)


def _stacked(entry: Entry, axis: int) -> Entry:
    match = _NAME.match(entry.theirs)
    if match is None:
        return entry
    index = [*entry.index, *[slice(None)] * (axis - len(entry.index))]
    index.insert(axis, int(match[1]))
    return replace(entry, theirs=_NAME.sub(_STACK, entry.theirs), index=tuple(index))
