"""Quantiles of Student's t distribution for any number of degrees of freedom."""

from __future__ import annotations

import math
from functools import cache

_LONGEST = 10_000  # terms of the fraction; fewer than 100 are used
_HALVINGS = 200  # more than the bits of a double: bisection ends earlier, where the ends meet


@cache
def quantile(probability: float, degrees: int) -> float:
    """The t with P(T <= t) = probability, from 0.5 to below 1, to at least 9 digits."""
    if not 0.5 <= probability < 1.0 or degrees < 1:
        raise ValueError(
            f"[students_t] expected a probability in [0.5, 1) and degrees >= 1, got {probability}, {degrees}"
        )
    low, high = 0.0, 1.0
    while _above(high, degrees) > 1.0 - probability:
        high *= 2.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if _above(middle, degrees) > 1.0 - probability else (low, middle)
    return high


def _above(t: float, degrees: int) -> float:
    """P(T > t) for t >= 0: half of the incomplete beta function at degrees / (degrees + t^2)."""
    return 0.5 * _incomplete_beta(0.5 * degrees, 0.5, t * t, float(degrees))


def _incomplete_beta(a: float, b: float, rest: float, part: float) -> float:
    """Regularized I_x(a, b) at x = part / (part + rest), both given since 1 - x loses digits for small `rest`."""
    x, y = part / (part + rest), rest / (part + rest)
    if y == 0.0:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(y))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, y) / b


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, evaluated from its front (Lentz's method)."""
    tiny = 1e-300
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0), tiny)
    value = d
    for m in range(1, _LONGEST):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + term * d, tiny)
            c = _away_from_zero(1.0 + term / c, tiny)
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
