"""Write measured rows as JSON with one line for each row, so that a diff shows which rows changed."""

from __future__ import annotations

import json


def text(value: object, depth: int) -> str:
    """Return `value` as JSON; containers below `depth` levels take one line each. json.loads reads it."""
    return _lines(value, depth, "") + "\n"


def _lines(value: object, depth: int, margin: str) -> str:
    if not value or not depth or not isinstance(value, dict | list):
        return json.dumps(value)
    inner = margin + " "
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_lines(each, depth - 1, inner)}" for key, each in value.items()]
    else:
        parts = [_lines(each, depth - 1, inner) for each in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n{inner}" + f",\n{inner}".join(parts) + f"\n{margin}{last}"
