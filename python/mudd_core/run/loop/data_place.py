"""The data position in a checkpoint, with which a resume finds the next batch without reading all earlier data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mudd_core.base.types import Json, JsonObject

if TYPE_CHECKING:
    from mudd_core.data.rows import Rows

MEMBER = "data"


def place_of(rows: Rows | None, batch: int) -> JsonObject:
    """Return the position of a batch as a key of the checkpoint's state; empty if the batch index is enough."""
    from mudd_core.data.rows import Cursored

    cursor = rows.cursor(batch) if isinstance(rows, Cursored) else None
    if cursor is None:
        return {}
    plain: JsonObject = json.loads(json.dumps(cursor))  # the types are the same as after reading a checkpoint
    return {MEMBER: plain}


def restore(rows: Rows | None, state: Mapping[str, Json]) -> None:
    """Move the data to the position in a checkpoint's state."""
    from mudd_core.data.rows import Cursored

    if MEMBER in state and isinstance(rows, Cursored):
        rows.go_on(state[MEMBER])


def end_reading(rows: Rows | None) -> None:
    """Stop the reader processes and threads of the data."""
    from mudd_core.data.pipelines.ids_data import FirstBatch
    from mudd_core.data.pipelines.mixture.rows import MixedRows
    from mudd_core.data.streaming.rows import StreamRows

    inner = rows.of if isinstance(rows, FirstBatch) else rows
    if isinstance(inner, StreamRows | MixedRows):
        inner.close()
