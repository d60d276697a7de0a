"""Readable quantities: bytes in powers of 1024, operations in powers of 1000, times from days to seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence

_BYTES = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_FLOPS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP", "YFLOP")


def _scaled(number: float, step: float, names: tuple[str, ...]) -> str:
    place = 0
    while number >= 0.9995 * step and place < len(names) - 1:
        number /= step
        place += 1
    digits = 0 if place == 0 or number >= 999.5 else 1 if number >= 99.95 else 2 if number >= 9.995 else 3
    return f"{number:,.{digits}f} {names[place]}"


def bytes_text(count: float) -> str:
    """Return for example '27.30 MiB' or '1.295 GiB'."""
    return _scaled(count, 1024.0, _BYTES)


def size_text(count: float) -> str:
    """Return bytes in powers of 1000 with one or two digits, for example '850 bytes', '2.1 KB' or '27 MB'."""
    number, name = _short(count, ("bytes", "KB", "MB", "GB", "TB"))
    return f"{number:.{int(name != 'bytes' and number < 9.95)}f} {name}"


def count_text(count: float) -> str:
    """Return a count with three digits, for example '931', '1.29 M' or '46.7 B'."""
    number, name = _short(count, ("", "k", "M", "B", "T"))
    return f"{number:.3g} {name}".rstrip()


def _short(count: float, names: Sequence[str]) -> tuple[float, str]:
    """Return a number below 1000 and the name of its power of 1000."""
    place = 0
    while count >= 999.5 and place < len(names) - 1:
        count /= 1000
        place += 1
    return count, names[place]


def flops_text(count: float) -> str:
    """Return for example '43.91 MFLOP' or '87.64 PFLOP'."""
    return _scaled(count, 1000.0, _FLOPS)


def duration(seconds: float) -> str:
    """Return a time such as 45s, 12m30s, 3h05m, 2d07h, 14 years."""
    if not math.isfinite(seconds):
        return "?"
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    if whole < 2 * 365 * 86400:
        return f"{whole // 86400}d{whole % 86400 // 3600:02d}h"
    return f"{whole / (365.25 * 86400):,.0f} years"
