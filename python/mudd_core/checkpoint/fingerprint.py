"""The final hash of a run: one number for all its weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mudd_core.checkpoint import dtypes


def final_hash(parameters: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over (name, dtype, shape, bytes) of each parameter, in the order of the names' UTF-8 bytes.

    A parameter enters as `name \\0 dtype \\0 d0,d1,... \\0` followed by its row-major little-endian bytes;
    dtype is the safetensors name (F32). Returns 64 hex digits. ValueError for a dtype without such a name.
    """
    digest = hashlib.sha256()
    for name in sorted(parameters, key=lambda text: text.encode()):
        array = np.ascontiguousarray(parameters[name]).reshape(np.shape(parameters[name]))
        dtype = dtypes.name_of(array.dtype)
        if dtype is None:
            raise ValueError(f"[final_hash] {name}: expected a dtype of safetensors, got {array.dtype}")
        digest.update(f"{name}\0{dtype}\0{','.join(map(str, array.shape))}\0".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
