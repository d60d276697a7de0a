"""Spans of layers in a config field, such as "0-3,7"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


@cache
def layers_of(spans: str, n_layer: int) -> frozenset[int]:
    """Return the layers of spans such as "0-3,7" (from 0); all layers for an empty string.

    Raise ValueError for a malformed string, a reversed span, or a layer that the model does not have.
    """
    if not spans:
        return frozenset(range(n_layer))
    found: set[int] = set()
    for span in spans.split(","):
        match = _SPAN.fullmatch(span.strip())
        if match is None:
            raise ValueError(f"expected spans of layers such as 0-3,7, got '{spans}'")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < n_layer:
            raise ValueError(f"expected layers from 0 to {n_layer - 1}, the smaller one first, got '{span}'")
        found.update(range(first, last + 1))
    return frozenset(found)


def spans_of(layers: Iterable[int], n_layer: int) -> str:
    """Return the shortest spans of these layers; an empty string for all n_layer layers."""
    found = set(layers)
    return "" if found == set(range(n_layer)) else spans_text(found)


def spans_text(layers: Iterable[int]) -> str:
    """Return the shortest spans of these layers; an empty string for no layers."""
    ordered = sorted(set(layers))
    spans: list[list[int]] = []
    for layer in ordered:
        if spans and spans[-1][1] == layer - 1:
            spans[-1][1] = layer
        else:
            spans.append([layer, layer])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
