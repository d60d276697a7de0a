"""The user's function that fit() calls after each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Callback(Generic[T]):
    """A function of a trainer, which may not train: that would change the steps of the loop that calls it."""

    def __init__(self, function: Callable[[T], None] | None, place: str) -> None:
        """Raise TypeError for a value that is not a function. place: of the argument, for the message."""
        if function is not None and not callable(function):
            raise TypeError(
                f"[{place}] callback: expected a function of the trainer, got {function!r}; type "
                "callback=lambda trainer: print(trainer.step_done)"
            )
        self._function, self._runs = function, False

    def __bool__(self) -> bool:
        return self._function is not None

    def __call__(self, trainer: T, save: Callable[[], None]) -> None:
        """Call the function; if it raises, save the run before the error continues."""
        if self._function is None:
            return
        self._runs = True
        try:
            self._function(trainer)
        except BaseException:
            save()
            raise
        finally:
            self._runs = False

    def require_done(self) -> None:
        """Raise RuntimeError inside the function."""
        if self._runs:
            raise RuntimeError(
                "[fit] callback: expected a function that does not train, got one that calls fit or step; read the "
                "trainer there, and train after fit() has returned"
            )
