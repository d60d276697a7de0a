"""Differences of arrays in units of the last place (ulp)."""

from __future__ import annotations

import numpy as np

from mudd_core.base.types import Array

# Bits of the fraction of each type.
_FRACTION = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7, "int32": 0, "uint8": 0}
WHOLE = ("int32", "uint8")
_SIGNED: dict[str, type[np.signedinteger]] = {"float64": np.int64, "float32": np.int32, "uint16": np.int16}


def as_float64(values: Array, dtype: str) -> Array:
    """Return the values as float64. A bfloat16 array is stored as uint16."""
    if dtype == "bfloat16" and values.dtype == np.uint16:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    elif dtype == "float16" and values.dtype == np.uint16:
        values = values.view(np.float16)
    wide: Array = values.astype(np.float64)
    return wide


def coarser(a: str, b: str) -> str:
    """Return the type with fewer bits in its fraction."""
    return min(a, b, key=lambda dtype: _FRACTION[dtype])


def steps_between(a: Array, b: Array, dtype: str) -> Array:
    """Return the number of representable values between the elements of a and b, both of one type, as float64.

    NaN is infinitely far from all but NaN.
    """
    one, other = (_ordered(x) for x in (a, b))
    steps = np.abs(one - other)
    nan_a, nan_b = (np.isnan(as_float64(x, dtype)) for x in (a, b))
    return np.where(nan_a & nan_b, 0.0, np.where(nan_a | nan_b, np.inf, steps))


def _ordered(values: Array) -> Array:
    """Return integers in the order of the floats, as float64: neighbours differ by one."""
    bits = np.ascontiguousarray(values)
    if bits.dtype == np.float16:
        bits = bits.view(np.uint16)
    kind = _SIGNED[bits.dtype.name]
    signed = bits.view(kind).astype(np.int64)
    low = np.iinfo(kind).min
    with np.errstate(over="ignore"):
        ordered = np.where(signed < 0, np.int64(low) - signed, signed)
    made: Array = ordered.astype(np.float64)
    return made


def scaled_ulps(a: Array, b: Array, dtype: str) -> Array:
    """Return |a - b| in ulps of `dtype` at the largest of |a|, |b| and the root mean square of the values, in float64.

    The root mean square keeps elements near zero, which are differences of larger numbers, from counting as far apart.
    a, b: float64.
    """
    finite = np.isfinite(a) & np.isfinite(b)
    x, y = np.where(finite, a, 0.0), np.where(finite, b, 0.0)
    mean = float(np.sqrt(np.mean(np.square(x)))) if x.size else 0.0
    top = np.maximum(np.maximum(np.abs(x), np.abs(y)), mean)
    exponent = np.frexp(np.where(top == 0, 1.0, top))[1] - 1 - _FRACTION[dtype]
    ulps = np.ldexp(np.abs(x - y), -exponent)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    made: Array = np.where(finite, ulps, np.where(same, 0.0, np.inf))
    return made
