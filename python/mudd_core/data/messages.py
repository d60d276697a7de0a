"""Messages between a run and its tokenizer processes: a JSON header and arrays, sent through a pipe."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import IO, BinaryIO, Literal, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import Array

# The ways to turn a document into ids. plain: only the ids. end: the ids, then EOS. ends: BOS, the ids, EOS. template:
# as the tokenizer's post-processing template defines. ids: the documents are int64 ids already.
Frame: TypeAlias = Literal["plain", "end", "ends", "template", "ids"]


class Head(TypedDict, total=False):
    """The keys of all message headers: of a recipe, a job, an answer and an error."""

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
    template: bool

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
    """Write one complete message."""
    shapes = [[array.dtype.str, *array.shape] for array in arrays]
    text = json.dumps([dict(head), shapes]).encode()
    pipe.write(len(text).to_bytes(4, "little") + text)
    for array in arrays:
        pipe.write(np.ascontiguousarray(array).tobytes())
    pipe.flush()


def receive(pipe: IO[bytes]) -> Message | None:
    """Return the next message; None if the other side has closed the pipe, even in the middle of a message."""
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


def joined(rows: Sequence[Array], dtype: npt.DTypeLike) -> list[Array]:
    """Return two arrays: the lengths of the given arrays, and all their values."""
    lengths = np.array([row.size for row in rows], np.int64)
    return [lengths, np.concatenate([np.empty(0, dtype), *rows])]


def fault_of(error: BaseException) -> Head:
    """Return the header that sends an error to the run, which raises it again."""
    if isinstance(error, FormatError):
        return {"error": "format", "path": error.file, "offset": error.offset, "text": error.reason}
    if isinstance(error, UserError):
        return {"error": "user", "text": str(error)}
    if isinstance(error, OSError) and error.errno is not None:
        file = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
        return {"error": "lost", "errno": error.errno, "text": error.strerror or str(error), "path": file}
    return {"error": "other", "text": f"{type(error).__name__}: {error}"}


def error_of(head: Head, failed: str) -> Exception:
    """Return the exception that an answer describes. failed: the message for an unexpected error."""
    if head["error"] == "format":
        return FormatError(head["path"], head["offset"], head["text"])
    if head["error"] == "user":
        return UserError(head["text"])
    return RuntimeError(f"[data] {failed}: {head['text']}")


def answer_parent(serve: Callable[[BinaryIO, BinaryIO], None], ignored: Iterable[int]) -> None:
    """Answer messages on standard input and output until the parent process ends.

    ignored: signals that only the parent handles; it then ends this process.
    """
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that no library prints into the answers
    try:
        serve(sys.stdin.buffer, out)
    except BrokenPipeError:
        os._exit(0)
