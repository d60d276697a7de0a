"""Messages between a run and the processes that tokenize for it: a JSON head and arrays, through a pipe."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Message = tuple[dict[str, Any], list[Array]]


def send(pipe: IO[bytes], head: Mapping[str, Any], arrays: Sequence[Array] = ()) -> None:
    """Write a message whole."""
    shapes = [[array.dtype.str, *array.shape] for array in arrays]
    text = json.dumps([dict(head), shapes]).encode()
    pipe.write(len(text).to_bytes(4, "little") + text)
    for array in arrays:
        pipe.write(np.ascontiguousarray(array).tobytes())
    pipe.flush()


def receive(pipe: IO[bytes]) -> Message | None:
    """The next message; None where the other side is gone, within a message too."""
    size = pipe.read(4)
    if len(size) < 4:
        return None
    text = pipe.read(int.from_bytes(size, "little"))
    if len(text) < int.from_bytes(size, "little"):
        return None
    head, shapes = json.loads(text)
    arrays = []
    for dtype, *shape in shapes:
        wanted = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        data = pipe.read(wanted)
        if len(data) < wanted:
            return None
        arrays.append(np.frombuffer(data, dtype).reshape(shape))
    return head, arrays
