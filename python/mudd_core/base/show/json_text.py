"""The JSON that commands print with --json: one object, whose key `schema` names the command and the form."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from mudd_core.base.types import Json, JsonObject

_FORM = 1  # raised if a key changes its meaning or is removed; docs/file-formats.md describes the form


def json_text(command: str, values: Mapping[str, Json]) -> str:
    """Return the object as text. Numbers that are not finite become null."""
    found: JsonObject = {"schema": f"mudd_core.{command}/{_FORM}", **values}
    return json.dumps(_finite(found), indent=2, allow_nan=False)


def _finite(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
