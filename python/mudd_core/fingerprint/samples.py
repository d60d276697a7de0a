"""Samples of a value as hexadecimal digits of their bits, the most significant first, without a separator."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_CODES = {"float32": "f", "bfloat16": "f", "float16": "e", "float64": "d", "int32": "i", "uint8": "B"}
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8, "int32": 4, "uint8": 1}


def digits_of(samples: Sequence[float], dtype: str) -> str:
    """Return the digits of samples, which are numbers of this type."""
    whole = dtype in ("int32", "uint8")
    packed = (struct.pack(f">{_CODES[dtype]}", int(one) if whole else one) for one in samples)
    return "".join(one[: _BYTES[dtype]].hex() for one in packed)


def samples_of(digits: str, dtype: str, most: int) -> tuple[float, ...] | None:
    """Return the samples; None unless these are the digits of at most `most` numbers of this type."""
    width = _BYTES[dtype]
    data = bytes.fromhex(digits)
    if len(data) % width or len(data) > most * width:
        return None
    rest = bytes(struct.calcsize(f">{_CODES[dtype]}") - width)  # a bfloat16 is the first half of a float32
    cut = (data[at : at + width] + rest for at in range(0, len(data), width))
    return tuple(float(struct.unpack(f">{_CODES[dtype]}", one)[0]) for one in cut)
