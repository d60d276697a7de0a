"""Safetensors' dtype names and the NumPy dtypes that store them."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from mudd_core.base.types import Array, Float32

DType: TypeAlias = "np.dtype[np.generic]"

# NumPy has no bfloat16. A separate dtype for its 16-bit values keeps them from being mistaken for integers.
BF16 = np.dtype([("bfloat16", np.uint16)])

_NAMES: dict[str, str | DType] = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": BF16,
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
}
# Elements that are converted at a time, so that intermediate values need little memory.
AT_ONCE = 1 << 18
_BY_DTYPE: dict[DType, str] = {np.dtype(numpy_name): name for name, numpy_name in _NAMES.items()}


def name_of(dtype: DType) -> str | None:
    """Return the safetensors name of a NumPy dtype in native byte order; None if there is none."""
    return _BY_DTYPE.get(dtype)


def numpy_dtype(name: str) -> DType | None:
    """Return the NumPy dtype of a safetensors name; None if there is none (the 8-bit floats)."""
    numpy_name = _NAMES.get(name)
    return None if numpy_name is None else np.dtype(numpy_name)


def as_float32(array: Array) -> Float32:
    """Return an array of any real dtype as float32: unchanged, or a copy; exact for BF16 and F16."""
    if array.dtype == BF16:
        words = np.ascontiguousarray(array).view(np.uint16).reshape(array.shape).astype(np.uint32)
        words <<= 16
        return words.view(np.float32)
    return np.asarray(array, np.float32)


def rounded(values: Float32, name: str) -> Array:
    """Return finite float32 values rounded to a safetensors type: F32 (no copy), BF16 or F16; ties to even."""
    if name == "BF16":
        words = np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint32)
        out = np.empty(words.size, np.uint16)
        for begin in range(0, words.size, AT_ONCE):
            some = words[begin : begin + AT_ONCE]
            half = np.uint32(0x7FFF) + ((some >> np.uint32(16)) & np.uint32(1))
            out[begin : begin + AT_ONCE] = (some + half) >> np.uint32(16)
        return out.view(BF16).reshape(values.shape)
    with np.errstate(over="ignore"):  # the caller reports the value that is too large
        return values.astype(_NAMES[name], copy=False)
