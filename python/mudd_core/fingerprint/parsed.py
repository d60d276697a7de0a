"""The checks of a record that is read: each field has its type, and bounds that no file exceeds."""

from __future__ import annotations

import json
import math
import re

from mudd_core.base.types import Json, JsonObject
from mudd_core.fingerprint.lines import DTYPES, FORMAT, STAGES, Header, Key, Line

_LONGEST, _LARGEST = 4096, 2**62  # characters of a name; whole numbers
_HEX = re.compile(r"[0-9a-f]+", re.ASCII)
_WHOLE, _TEXTS = (
    ("step", "world", "format"),
    ("family", "config_hash", "data_hash", "isa", "precision", "package"),
)
_REALS = ("loss", "grad_norm")
_LINE = (
    "stage",
    "place",
    "op",
    "value",
    "shape",
    "dtype",
    "digest",
    "samples",
    "run",
    "rank",
    "begin",
    "first_row",
)


class Malformed(ValueError):
    """A file that is no record; the message says why."""


def parsed(row: bytes, number: int) -> JsonObject:
    """Return a line of a file as a JSON object. number: of the line, for messages."""
    try:
        found: Json = json.loads(row)
    except (ValueError, RecursionError):
        raise Malformed(f"line {number} is no JSON") from None
    if not isinstance(found, dict):
        raise Malformed(f"line {number} is no JSON object")
    return found


def header_of(row: JsonObject) -> Header:
    """Return the checked header."""
    if "format" not in row or "step" not in row:
        raise Malformed("the first line is no header")
    if row["format"] == FORMAT and (unknown := row.keys() - {*_WHOLE, *_TEXTS, *_REALS}):
        raise Malformed(f"the header has an unknown field {_shown(min(unknown))}")
    family, configured, data, isa, precision, package = (_text(name, row.get(name, "")) for name in _TEXTS)
    step, world, version = (_whole(name, row.get(name, 1)) for name in _WHOLE)
    loss, norm = (_real(name, row.get(name, "nan")) for name in _REALS)
    return Header(step, family, configured, data, isa, precision, world, package, loss, norm, version)


def line_of(row: JsonObject) -> Line:
    """Return the checked line of a value."""
    if unknown := row.keys() - {*_LINE, "rows"}:
        raise Malformed(f"a line has an unknown field {_shown(min(unknown))}")
    if missing := [name for name in _LINE[:8] if name not in row]:
        raise Malformed(f"a line has no field '{missing[0]}'")
    run, rank, begin, first = (
        _whole(name, row.get(name, 0)) for name in ("run", "rank", "begin", "first_row")
    )
    stage, dtype = _choice("stage", row["stage"], STAGES), _choice("dtype", row["dtype"], DTYPES)
    place, op, value = (_text(name, row[name]) for name in ("place", "op", "value"))
    return Line(
        Key(rank, run, stage, place, value),
        op,
        tuple(_whole("shape", one) for one in _list("shape", row["shape"], 16)),
        dtype,
        _hex("digest", row["digest"], 32),
        tuple(_real("samples", one) for one in _list("samples", row["samples"], 8)),
        begin,
        first,
        tuple(_hex("rows", one, 16) for one in _list("rows", row.get("rows", []), 2**20)),
    )


def _shown(value: Json) -> str:
    """Return a value for a message: of a list or an object only its kind."""
    return (
        f"{value!r:.60}" if isinstance(value, (str, int, float, type(None))) else f"a {type(value).__name__}"
    )


def _whole(name: str, value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise Malformed(f"{name}: expected a whole number, got {_shown(value)}")
    return value


def _text(name: str, value: Json) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
        raise Malformed(f"{name}: expected a printable string, got {_shown(value)}")
    return value


def _choice(name: str, value: Json, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise Malformed(f"{name}: expected one of {', '.join(choices)}, got {_shown(value)}")
    return value


def _hex(name: str, value: Json, digits: int) -> str:
    if not isinstance(value, str) or len(value) != digits or not _HEX.fullmatch(value):
        raise Malformed(f"{name}: expected {digits} hexadecimal digits, got {_shown(value)}")
    return value


def _real(name: str, value: Json) -> float:
    if value in ("nan", "inf", "-inf") and isinstance(value, str):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > 1e300:
        raise Malformed(f"{name}: expected a number, got {_shown(value)}")
    if not math.isfinite(value):
        raise Malformed(f"{name}: expected a finite number, got {value}")
    return float(value)


def _list(name: str, value: Json, most: int) -> list[Json]:
    if not isinstance(value, list) or len(value) > most:
        raise Malformed(f"{name}: expected a list of at most {most} elements")
    return value
