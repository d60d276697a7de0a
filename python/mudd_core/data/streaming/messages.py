"""Messages between a run and the processes that tokenize for it: a JSON head and arrays, through a pipe."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Literal, TypeAlias, TypedDict

import numpy as np

from mudd_core.base.types import Array

if TYPE_CHECKING:
    from mudd_core.data.documents.source import Frame


class Head(TypedDict, total=False):
    """The members of all messages: of the recipe, of a job, of its answer, of an error."""

    files: list[str]
    named: str
    column: str
    cuts: bool
    drops: bool
    identity: str
    tokenizer_file: str
    frame: Frame
    kept: Literal["all", "train", "held"]
    longest: int
    tail: int

    ticket: int
    do: str
    file: int
    first: int
    count: int
    ids: bool

    read: int
    bytes: int
    ended: bool
    dropped: int
    first_dropped: str

    error: str
    text: str
    path: str
    offset: int
    errno: int


Message: TypeAlias = "tuple[Head, list[Array]]"


def send(pipe: IO[bytes], head: Head, arrays: Sequence[Array] = ()) -> None:
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
