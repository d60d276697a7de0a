"""Sections that run the newest checkpoint: a MUDDFormer's connections across depth, a TokenFormer's slots."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.types import Float64
from mudd_core.config import MUDDFormerConfig, TokenFormerConfig
from mudd_core.run.report.page.elements import Section, charts, table, text
from mudd_core.run.report.page.heat_map import heat_map
from mudd_core.run.report.page.records import Records

if TYPE_CHECKING:
    from mudd_core.run.report.families.held_out import HeldOut


STREAMS = {"q": "query", "k": "key", "v": "value", "r": "residual", "x": "all inputs"}


def connections(records: Records) -> Section | None:
    """Return the section with the weights of earlier states: mean and standard deviation over tokens.

    None for a model without such mixtures.
    """
    model = records.config.model
    if not isinstance(model, MUDDFormerConfig) or model.mix == "none":
        return None
    return of_checkpoint("Connections across depth", records, _connection_maps)


def _connection_maps(found: HeldOut) -> str:
    from mudd_core.engine.muddformer_weights import measured_weights

    weights = measured_weights(found.model, [found.batch])
    layers = weights.static.shape[0]
    rows = [f"block {layer}" for layer in range(layers)]
    columns = ["embedding", *rows]
    note = text(
        f"{found.text} A row is the mixture after its block, a column the state that it reads.", "note"
    )
    parts = []
    for place, name in enumerate(weights.names):
        mean, spread = (weights.static + weights.mean)[:, place], weights.std[:, place]
        stream = STREAMS[name]
        parts.append(heat_map(f"Mean weight, {stream}", mean, rows=rows, columns=columns, middle=0.0))
        if spread[spread == spread].any():
            parts.append(heat_map(f"Spread over tokens, {stream}", spread, rows=rows, columns=columns))
    return note + charts(parts)


GROUPS = 32  # groups of slots, the columns of a map
UNUSED = 0.01  # fraction of an equal part; a slot with less is called unused


def slots(records: Records) -> Section | None:
    """Return the section with the use of the slots on held-out text; None for a model without slots."""
    model = records.config.model
    if not isinstance(model, TokenFormerConfig) or model.block == "dense":
        return None
    return of_checkpoint("Slots by use", records, _slot_maps)


def by_use(mass: Float64) -> Float64:
    """Return [L, at most GROUPS]: the mass [L, n] sorted within a layer, averaged over groups, times n.

    1 means that the slots of a group are used as much as the average slot.
    """
    count = mass.shape[1]
    ordered = np.sort(mass, 1)[:, ::-1] * count
    edges = np.linspace(0, count, min(GROUPS, count) + 1).round().astype(int)
    return np.stack([ordered[:, a:b].mean(1) for a, b in itertools.pairwise(edges)], 1)


def _slot_maps(found: HeldOut) -> str:
    from mudd_core.engine.slot_use import slot_use

    uses = slot_use(found.model, found.batch["inputs"])
    layers = [f"layer {layer}" for layer in range(found.model.config.n_layer)]
    head = ("layer", *(f"{use.name} effective, unused" for use in uses))
    rows = [
        (name, *(f"{use.effective()[at]:.0%}, {use.unused(UNUSED)[at]:.0%}" for use in uses))
        for at, name in enumerate(layers)
    ]
    note = text(
        f"{found.text} The use of a slot is its part of the sum of absolute activated scores. Effective: e to the "
        f"entropy of the use, of all slots; unused: slots with less than {UNUSED:.0%} of an equal part. The columns of "
        "a map are groups of slots, each named by the fraction of the slots up to its end.",
        "note",
    )
    parts = []
    for use in uses:
        values = by_use(use.mass)
        names = [f"{(place + 1) / values.shape[1]:.0%}" for place in range(values.shape[1])]
        title = f"Slots of {use.name}: {use.mass.shape[1]} a layer, the most used first"
        parts.append(heat_map(title, values, rows=layers, columns=names, middle=1.0, unit="of an equal part"))
    return note + table(rows, head) + charts(parts)


def of_checkpoint(title: str, records: Records, body: Callable[[HeldOut], str]) -> Section:
    """Return a section with the HTML that `body` builds from the newest checkpoint; a note if that fails."""
    from mudd_core.run.report.families.held_out import held_out

    try:
        return Section(title, body(held_out(records.folder, records.config)))
    except Exception as error:  # a page without this section is better than no page
        reason = str(error) or type(error).__name__
        return Section(title, text(f"The newest checkpoint was not measured: {reason}.", "note"))
