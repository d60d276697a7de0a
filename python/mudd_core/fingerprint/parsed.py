"""The checks of a record that is read: each field has its type, and bounds that no file exceeds."""

from __future__ import annotations

import json
import math
import re

from mudd_core.base.types import Json, is_number
from mudd_core.fingerprint.lines import DTYPES, FORMAT, STAGES, Header, Key, Line, op_of
from mudd_core.fingerprint.samples import samples_of

_LONGEST, _LARGEST = 4096, 2**62  # characters of a name; whole numbers
_HEX = re.compile(r"[0-9a-f]+", re.ASCII)
_WHOLE, _TEXTS = (
    ("step", "world", "format"),
    ("family", "config_hash", "data_hash", "code_hash", "isa", "precision", "package"),
)
_REALS = ("loss", "grad_norm")
SEAL = "sha256"  # of the header: the hash of all further lines
_REST = ("op", "run", "rank", "begin", "first_row", "rows")
_LEAST = 6  # members of a line without the object of the rest
_FORM = re.compile(r"([a-z0-9]+)(?: ([0-9]{1,19}(?:x[0-9]{1,19}){0,15}))?", re.ASCII)
_SAMPLES = 8


class Malformed(ValueError):
    """A file that is no record; the message says why."""


def parsed(row: bytes, number: int) -> Json:
    """Return a line of a file as JSON. number: of the line, for messages."""
    try:
        found: Json = json.loads(row)
    except (ValueError, RecursionError):
        raise Malformed(f"line {number} is no JSON") from None
    return found


def header_of(row: Json) -> Header:
    """Return the checked header."""
    if not isinstance(row, dict) or "format" not in row or "step" not in row:
        raise Malformed("the first line is no header")
    if row["format"] == FORMAT and (unknown := row.keys() - {*_WHOLE, *_TEXTS, *_REALS, SEAL}):
        raise Malformed(f"the header has an unknown field {_shown(min(unknown))}")
    family, configured, data, code, isa, precision, package = (
        _text(name, row.get(name, "")) for name in _TEXTS
    )
    step, world, version = (_whole(name, row.get(name, 1)) for name in _WHOLE)
    loss, norm = (_real(name, row.get(name, "nan")) for name in _REALS)
    return Header(step, family, configured, data, code, isa, precision, world, package, loss, norm, version)


def line_of(row: Json) -> Line:
    """Return the checked line of a value (record.line_json)."""
    if not isinstance(row, list) or not _LEAST <= len(row) <= _LEAST + 1:
        raise Malformed(f"a line is no list of {_LEAST} or {_LEAST + 1} members")
    rest = row[_LEAST] if len(row) > _LEAST else {}
    if not isinstance(rest, dict):
        raise Malformed(f"the last member of a line is {_shown(rest)}, no object")
    if unknown := rest.keys() - set(_REST):
        raise Malformed(f"a line has an unknown field {_shown(min(unknown))}")
    run, rank, begin, first = (
        _whole(name, rest.get(name, 0)) for name in ("run", "rank", "begin", "first_row")
    )
    stage = _choice("stage", row[0], STAGES)
    place, value = _text("place", row[1]), _text("value", row[2])
    dtype, shape = _form(row[3])
    return Line(
        Key(rank, run, stage, place, value),
        _text("op", rest.get("op", op_of(place))),
        shape,
        dtype,
        _hex("digest", row[4], 32),
        _samples(row[5], dtype),
        begin,
        first,
        tuple(_hex("rows", one, 16) for one in _list("rows", rest.get("rows", []), 2**20)),
    )


def _form(value: Json) -> tuple[str, tuple[int, ...]]:
    """Return type and shape of a string such as "float32 257x32"."""
    found = _FORM.fullmatch(value) if isinstance(value, str) and len(value) <= _LONGEST else None
    if found is None:
        raise Malformed(f"expected a type and a shape such as 'float32 2x8', got {_shown(value)}")
    sizes = found[2].split("x") if found[2] else ()
    return _choice("type", found[1], DTYPES), tuple(_whole("shape", int(one)) for one in sizes)


def _samples(value: Json, dtype: str) -> tuple[float, ...]:
    digits = value if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{0,128}", value, re.ASCII) else None
    found = None if digits is None or len(digits) % 2 else samples_of(digits, dtype, _SAMPLES)
    if found is None:
        raise Malformed(
            f"samples: expected digits of at most {_SAMPLES} numbers of {dtype}, got {_shown(value)}"
        )
    return found


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
    if not is_number(value) or abs(value) > 1e300:
        raise Malformed(f"{name}: expected a number, got {_shown(value)}")
    if not math.isfinite(value):
        raise Malformed(f"{name}: expected a finite number, got {value}")
    return float(value)


def _list(name: str, value: Json, most: int) -> list[Json]:
    if not isinstance(value, list) or len(value) > most:
        raise Malformed(f"{name}: expected a list of at most {most} elements")
    return value
