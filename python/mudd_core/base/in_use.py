"""A guard that lets one thread at a time use an object: a second thread gets a RuntimeError, not a wrong result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class InUse:
    """A context manager around the use of an object. The thread that entered may enter again; others get RuntimeError.

    what: the name of the object in the error.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                f"[{self._what}] called from two threads at once; create one object for each thread"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _Guarded(Protocol):
    @property
    def in_use(self) -> InUse: ...


P = ParamSpec("P")
R = TypeVar("R")
G = TypeVar("G", bound=_Guarded)


def alone(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    """Decorate a method so that it enters its object's `in_use` while it runs."""

    @wraps(method)
    def guarded(self: G, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.in_use:
            return method(self, *args, **kwargs)

    return guarded
