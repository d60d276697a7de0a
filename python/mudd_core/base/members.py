"""JSON objects from files as dataclasses: each member is there and of its type, or a FormatError names it."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from mudd_core.base.errors import FormatError

T = TypeVar("T")
_WORDS = {dict: "an object", str: "a string", int: "a whole number", float: "a number", type(None): "null"}


def build(cls: type[T], raw: Mapping[str, Any], file: Path, what: str = "") -> T:
    """The dataclass (of strings, numbers and None) with the members of `raw`; others are left out.

    null is NaN where a number is expected: so `plain` writes it. what: the place in the file, for the message.
    """
    hints = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(typing.cast(Any, cls)):
        if field.name in raw:
            values[field.name] = member(raw, field.name, hints[field.name], file, what)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise FormatError(str(file), 0, f"{what}member '{field.name}' is missing")
    return cls(**values)


def member(raw: Mapping[str, Any], name: str, hint: Any, file: Path, what: str = "") -> Any:
    """The member of this name if it is of the type; FormatError else."""
    if name not in raw:
        raise FormatError(str(file), 0, f"{what}member '{name}' is missing")
    value = raw[name]
    kinds = typing.get_args(hint) or (hint,)
    if value is None and float in kinds and type(None) not in kinds:
        return math.nan
    for kind in kinds:
        if kind is float and type(value) in (int, float) and abs(value) < 1e308:
            return float(value)
        if type(value) is kind and (kind is not int or abs(value) < 1 << 63):
            return value
    wanted = " or ".join(_WORDS.get(kind, str(kind)) for kind in kinds)
    raise FormatError(str(file), 0, f"{what}member '{name}': expected {wanted}, got {_shown(value)}")


def entries(raw: Mapping[str, Any], name: str, kind: type, file: Path, what: str = "") -> list[Any]:
    """The member of this name if it is a list of that type; FormatError else."""
    values = raw.get(name)
    if not isinstance(values, list):
        raise FormatError(str(file), 0, f"{what}member '{name}': expected a list, got {_shown(values)}")
    return [member({name: value}, name, kind, file, f"{what}an entry of ") for value in values]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
