"""JSON objects in files, read as dataclasses: a FormatError names a key that is missing or has another type."""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from mudd_core.base.errors import FormatError
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import Json, JsonObject

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")
T = TypeVar("T")
_WORDS = {dict: "an object", str: "a string", int: "a whole number", float: "a number", type(None): "null"}


def object_in(file: Path) -> dict[str, Json]:
    """Return the JSON object in a file; an empty one if the file contains anything else or is missing."""
    try:
        found = json.loads(read_bytes(file))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def strict_json(data: str | bytes) -> Json:
    """Parse JSON; raise ValueError for a repeated key, NaN or infinity, and RecursionError for deep nesting."""
    found: Json = json.loads(data, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    return found


def _no_duplicates(pairs: list[tuple[str, Json]]) -> JsonObject:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key appears twice")
    return out


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def build(cls: type[D], raw: Mapping[str, Json], file: Path, what: str = "") -> D:
    """Return a dataclass (of strings, numbers, tuples of them and None) with the values in `raw`; ignore other keys.

    null is read as NaN if a number is expected, because `plain` writes NaN as null. what: the place in the file, for
    messages.
    """
    hints = typing.get_type_hints(cls)
    make: Callable[..., D] = cls
    values: dict[str, Json | tuple[Json, ...]] = {}
    for field in dataclasses.fields(cls):
        if field.name in raw:
            hint = hints[field.name]
            if typing.get_origin(hint) is tuple:  # a tuple of any length
                kind = typing.get_args(hint)[0]
                values[field.name] = tuple(entries(raw, field.name, kind, file, what))
                continue
            values[field.name] = _value(raw, field.name, typing.get_args(hint) or (hint,), file, what)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise FormatError(str(file), 0, f"{what}key '{field.name}' is missing")
    return make(**values)


def member(raw: Mapping[str, Json], name: str, kind: type[T], file: Path, what: str = "") -> T:
    """Return the value of this key. Raise FormatError if it is missing or has another type."""
    value = _value(raw, name, (kind,), file, what)
    assert isinstance(value, kind)
    return value


def _value(raw: Mapping[str, Json], name: str, kinds: tuple[type, ...], file: Path, what: str) -> Json:
    """Return the value of this key if it has one of the types; an integer becomes a float if float is one of them."""
    if name not in raw:
        raise FormatError(str(file), 0, f"{what}key '{name}' is missing")
    value = raw[name]
    if value is None and float in kinds and type(None) not in kinds:
        return math.nan
    for kind in kinds:
        if (
            kind is float
            and type(value) in (int, float)
            and isinstance(value, int | float)
            and abs(value) < 1e308
        ):
            return float(value)
        if type(value) is kind and (not isinstance(value, int) or kind is bool or abs(value) < 1 << 63):
            return value
    wanted = " or ".join(_WORDS.get(kind, str(kind)) for kind in kinds)
    raise FormatError(str(file), 0, f"{what}key '{name}': expected {wanted}, got {_shown(value)}")


def entries(raw: Mapping[str, Json], name: str, kind: type[T], file: Path, what: str = "") -> list[T]:
    """Return the list of this key. Raise FormatError unless it is a list of that type."""
    values = raw.get(name)
    if not isinstance(values, list | tuple):
        raise FormatError(str(file), 0, f"{what}key '{name}': expected a list, got {_shown(values)}")
    return [member({name: value}, name, kind, file, f"{what}an entry of ") for value in values]


def _shown(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
