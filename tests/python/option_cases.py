"""Values that an option of an op or optimizer must refuse, derived from its declaration."""

from __future__ import annotations

import math

from mudd_core import _core

Value = bool | int | float | str
_TYPES = {bool: "a bool", str: "a str", int: "an int", float: "a number"}


def of_another_type(option: _core.Option) -> list[tuple[Value, str]]:
    """Return values of other types, each with the rule in the message."""
    wrong: tuple[tuple[Value, str], ...] = ((True, "True"), ("x", "'x'"), (0.5, "0.5"))
    kind = type(option.default)
    return [
        (value, f"expected {_TYPES[kind]}, got {shown}") for value, shown in wrong if type(value) is not kind
    ]


def out_of_bounds(option: _core.Option) -> list[Value]:
    """Return values of the right type that are not allowed; next to the bounds, if there are bounds."""
    if option.choices:
        return ["no such word"]
    low, high = option.low, option.high
    if type(option.default) is float:
        beyond = [math.nextafter(low, -math.inf), math.nextafter(high, math.inf)]
        return [math.nan, math.inf, -math.inf, *beyond]
    if type(option.default) is not int:
        return []
    return [int(bound) + step for bound, step in ((low, -1), (high, 1)) if math.isfinite(bound)]
