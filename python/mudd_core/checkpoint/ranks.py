"""Work that all ranks of a run do together: an error on one rank is raised on all, so that none waits forever."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.base.types import Json
from mudd_core.dist import Comm

T = TypeVar("T")  # anything that JSON can represent
V = TypeVar("V")
_KINDS: tuple[type[Exception], ...] = (UserError, SaveError, ValueError, TypeError, MemoryError)


def on_all(comm: Comm | None, work: Callable[[], T]) -> list[T]:
    """Return the results of `work` of all ranks, by rank. If ranks fail, the first one's error is raised on all."""
    if comm is None or comm.world == 1:
        return [work()]
    answer, own = _attempt(work)
    answers = [json.loads(data) for data in comm.all_gather(json.dumps(answer).encode())]
    for rank, found in enumerate(answers):
        if "error" in found:
            raise _error(found["error"], rank) from own
    return [found["value"] for found in answers]


def in_rounds(comm: Comm | None, phase: str, step: int, pieces: Sequence[Callable[[], T]]) -> list[list[T]]:
    """Return the results of the pieces of work of each rank, by rank; errors are raised as in on_all.

    The ranks wait for each other after every piece, so that a rank with less work still sends heartbeats. phase: the
    name of the work, for the watchdog.
    """
    if comm is None or comm.world == 1:
        return [[piece() for piece in pieces]]
    found: list[list[T]] = [[] for _ in range(comm.world)]
    counts = on_all(comm, lambda: len(pieces))
    for turn in range(max(counts)):
        comm.set_phase(phase, step)
        answers: list[T | None] = on_all(comm, pieces[turn] if turn < len(pieces) else lambda: None)
        for rank, answer in enumerate(answers):
            if turn < counts[rank]:
                found[rank].append(cast(T, answer))
    return found


def on_each(comm: Comm | None, work: Callable[[], V]) -> V:
    """Return the result of `work` on this rank, of any type. If ranks fail, the first one's error is raised on all."""
    kept: list[V] = []
    on_all(comm, lambda: kept.append(work()))
    return kept[0]


def on_first(comm: Comm | None, work: Callable[[], T]) -> T:
    """Run `work` on rank 0 and return its result on all ranks; raise its error on all."""
    if comm is None or comm.world == 1:
        return work()
    answer, own = _attempt(work) if comm.rank == 0 else ({}, None)
    found = json.loads(comm.broadcast(json.dumps(answer).encode()))
    if "error" in found:
        raise _error(found["error"], 0) from own
    value: T = found["value"]
    return value


def _attempt(work: Callable[[], T]) -> tuple[dict[str, T | list[Json]], Exception | None]:
    try:
        return {"value": work()}, None
    except Exception as error:
        return {"error": _facts(error)}, error


def _facts(error: Exception) -> list[Json]:
    if isinstance(error, FormatError):
        return ["FormatError", error.file, error.offset, error.reason]
    if isinstance(error, OSError) and error.errno is not None:
        return ["OSError", error.errno, error.strerror, error.filename]
    for kind in _KINDS:
        if isinstance(error, kind):
            return [kind.__name__, str(error)]
    return ["RuntimeError", f"{type(error).__name__}: {error}"]


def _error(facts: list[Json], rank: int) -> Exception:
    match facts:
        case ["FormatError", str(file), int(offset), str(reason)]:
            return FormatError(file, offset, reason)
        case ["OSError", *values]:
            return OSError(*values)
    kind, text = facts
    found = next((known for known in _KINDS if known.__name__ == kind), None)
    return RuntimeError(f"[rank {rank}] {text}") if found is None else found(text)
