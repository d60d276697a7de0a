"""The place of a run in its data, in a checkpoint: what finds the next batch without reading all before it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mudd_core.base.types import Json, JsonObject

if TYPE_CHECKING:
    from mudd_core.data.rows import Rows

MEMBER = "data"


def place_of(rows: Rows | None, batch: int) -> JsonObject:
    """The member of a checkpoint's state that has the place of a batch; none where its number says enough."""
    from mudd_core.data.rows import Cursored

    cursor = rows.cursor(batch) if isinstance(rows, Cursored) else None
    if cursor is None:
        return {}
    plain: JsonObject = json.loads(json.dumps(cursor))  # as a checkpoint has it
    return {MEMBER: plain}


def restore(rows: Rows | None, state: Mapping[str, Json]) -> None:
    """Give rows the place of a checkpoint's state."""
    from mudd_core.data.rows import Cursored

    if MEMBER in state and isinstance(rows, Cursored):
        rows.go_on(state[MEMBER])


def end_reading(rows: Rows | None) -> None:
    """End what rows have running beside this process."""
    from mudd_core.data.pipelines.ids_data import FirstBatch
    from mudd_core.data.streaming.rows import StreamRows

    inner = rows.of if isinstance(rows, FirstBatch) else rows
    if isinstance(inner, StreamRows):
        inner.close()
