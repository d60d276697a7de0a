"""Safetensors' dtype names and the NumPy dtypes that hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

_NAMES: dict[str, str] = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
    "C64": "complex64",
}
_BY_DTYPE = {np.dtype(numpy_name): name for name, numpy_name in _NAMES.items()}


def name_of(dtype: np.dtype[Any]) -> str | None:
    """The safetensors name of a NumPy dtype in native byte order; None where there is none."""
    return _BY_DTYPE.get(dtype)


def numpy_dtype(name: str) -> np.dtype[Any] | None:
    """The NumPy dtype of a safetensors name; None where NumPy has none (BF16, the 8-bit floats)."""
    numpy_name = _NAMES.get(name)
    return None if numpy_name is None else np.dtype(numpy_name)
