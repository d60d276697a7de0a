"""How a TokenFormer uses its slots: the most used first, by layer, for each projection."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.types import Float64
from mudd_core.config import TokenFormerConfig
from mudd_core.run.report.families.notes import of_checkpoint
from mudd_core.run.report.page.elements import charts, table, text
from mudd_core.run.report.page.heat_map import heat_map
from mudd_core.run.report.page.records import Records
from mudd_core.run.report.page.section import Section

if TYPE_CHECKING:
    from mudd_core.run.report.families.held_out import HeldOut

GROUPS = 32  # of slots, along a map
UNUSED = 0.01  # of an equal part: a slot with less counts as unused


def slots(records: Records) -> Section | None:
    """Use of the slots on held-out text; None for a model without slots."""
    model = records.config.model
    if not isinstance(model, TokenFormerConfig) or model.block == "dense":
        return None
    return of_checkpoint("Slots by use", records, _maps)


def by_use(mass: Float64) -> Float64:
    """[L, up to GROUPS]: means of the mass [L, n] over groups of slots sorted by it, times n: 1 is an equal part."""
    count = mass.shape[1]
    ordered = np.sort(mass, 1)[:, ::-1] * count
    edges = np.linspace(0, count, min(GROUPS, count) + 1).round().astype(int)
    return np.stack([ordered[:, a:b].mean(1) for a, b in itertools.pairwise(edges)], 1)


def _maps(found: HeldOut) -> str:
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
