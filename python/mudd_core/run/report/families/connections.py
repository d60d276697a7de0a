"""What the blocks of a MUDDFormer read of earlier states, by stream: query, key, value and residual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mudd_core.config import MUDDFormerConfig
from mudd_core.run.report.families.notes import of_checkpoint
from mudd_core.run.report.page.elements import charts, text
from mudd_core.run.report.page.heat_map import heat_map
from mudd_core.run.report.page.records import Records
from mudd_core.run.report.page.section import Section

if TYPE_CHECKING:
    from mudd_core.run.report.families.held_out import HeldOut

STREAMS = {"q": "query", "k": "key", "v": "value", "r": "residual", "x": "all inputs"}


def connections(records: Records) -> Section | None:
    """The mean weight of each earlier state and its spread over tokens; None for a model without mixtures."""
    model = records.config.model
    if not isinstance(model, MUDDFormerConfig) or model.mix == "none":
        return None
    return of_checkpoint("Connections across depth", records, _maps)


def _maps(found: HeldOut) -> str:
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
