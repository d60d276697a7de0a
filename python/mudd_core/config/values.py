"""Parsing of user input: strings of the command line, and values of JSON and YAML files.

Every function has an argument `name`, shown in messages as `[place] name`, and raises UserError (a ValueError) with
`name: expected X, got Y`. With an empty name the message is `expected X, got Y`, for a caller that adds its own.
strings: True accepts a string that spells a value, as on a command line. In a JSON file, "3" is not a number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mudd_core.base.errors import UserError
from mudd_core.base.types import Json, is_number

KINDS: dict[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
LARGEST_COUNT = 2**62  # largest value of fields that the core stores in 64 bits
_FLAGS = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}
_LONGEST = 60  # longest value in a message, in characters
_MOST_BITS = 256  # bits of the largest integer that a message shows


def shown(value: object) -> str:
    """Return the value for a message: strings in quotes, long ones truncated."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a number of more than {_MOST_BITS} bits"
    if isinstance(value, str):
        return f"'{value}'" if len(value) <= _LONGEST else f"'{value[:_LONGEST]}...'"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def mismatch(name: str, expected: str, value: object) -> UserError:
    """Return the error for an unexpected value."""
    return UserError(f"{name}{': ' if name else ''}expected {expected}, got {shown(value)}")


def whole(
    name: str, value: Json, low: int | None = None, high: int | None = None, *, strings: bool = True
) -> int:
    """Return an integer within inclusive bounds; 1e3, 3.0 and, as a string, 1_000 are integers."""
    found = _number(value, strings)
    if found is not None and (isinstance(found, int) or found.is_integer()):
        count = int(found)
        if (low is None or count >= low) and (high is None or count <= high):
            return count
    raise mismatch(name, KINDS[int] + _bounds(low, high), value)


def number(
    name: str,
    value: Json,
    low: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
    finite: bool = True,
    strings: bool = True,
) -> float:
    """Return a number: at least low, above or below exclusive bounds; infinities and NaN only if finite is False."""
    given, wanted = _number(value, strings), KINDS[float] + _range(low, above, below)
    if given is None:
        raise mismatch(name, wanted, value)
    found = _real(given)
    if finite and not math.isfinite(found):
        raise mismatch(name, "a finite number" if wanted == KINDS[float] else wanted, value)
    if (
        (low is not None and not found >= low)
        or (above is not None and not found > above)
        or (below is not None and not found < below)
    ):
        raise mismatch(name, wanted, value)
    return found


def flag(name: str, value: Json, *, strings: bool = True) -> bool:
    """Return a boolean; accepts the strings true, 1, yes, on, false, 0, no, off in any case, and the numbers 1 and
    0.
    """
    if isinstance(value, bool | int | float) and value in (0, 1):
        return bool(value)
    found = _FLAGS.get(value.strip().lower()) if strings and isinstance(value, str) else None
    if found is None:
        raise mismatch(name, KINDS[bool], value)
    return found


def text(name: str, value: Json) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise mismatch(name, KINDS[str], value)
    return value


def one_of(name: str, value: Json, choices: Sequence[str]) -> str:
    """Return one of the allowed strings."""
    if not isinstance(value, str) or value not in choices:
        raise mismatch(name, f"one of {', '.join(choices)}", value)
    return value


def wholes(name: str, value: str) -> list[int]:
    """Return comma-separated integers."""
    try:
        return [whole("", word) for word in value.split(",")]
    except UserError:
        raise mismatch(name, "whole numbers separated by commas", value) from None


def spelled(value: Json) -> Json:
    """Return the number that a string spells, or the value unchanged. YAML reads 1e-5, without a point, as a string."""
    found = _number(value, strings=True) if isinstance(value, str) and value[:1] in "+-.0123456789" else None
    return value if found is None else _real(found)


def _number(value: Json, strings: bool) -> int | float | None:
    """Return the number in a value; None if it is not a number. A float with an integer value keeps its type."""
    if isinstance(value, str):
        if not strings:
            return None
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
        return None
    if not is_number(value):
        return None
    return value


def _real(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer is too large for a float
        return math.inf if value > 0 else -math.inf


def _bounds(low: int | None, high: int | None) -> str:
    if low is None:
        return "" if high is None else f" of at most {high}"
    return f" of at least {low}" if high is None else f" from {low} to {high}"


def _range(low: float | None, above: float | None, below: float | None) -> str:
    if above is not None:
        return f" above {above:g}" + (f" and below {below:g}" if below is not None else "")
    if low is None:
        return "" if below is None else f" below {below:g}"
    return f" of at least {low:g}" if below is None else f" from {low:g} to below {below:g}"
