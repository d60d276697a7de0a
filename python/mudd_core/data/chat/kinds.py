"""Kinds of JSON values in messages."""

from __future__ import annotations

from mudd_core.base.types import Json


def kind_of(value: Json) -> str:
    """Return the kind of a JSON value, as messages call it."""
    names = {str: "a text", list: "a list", dict: "an object", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")
