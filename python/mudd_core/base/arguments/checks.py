"""Checks of arguments of the Python API. place: the function; name: its argument; both are for messages."""

from __future__ import annotations

from operator import index
from pathlib import Path
from typing import Literal


def require_flag(place: str, name: str, value: bool) -> None:
    """Raise TypeError unless the value is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"[{place}] {name}: expected True or False, got {value!r}")


def path_text(place: str, name: str, value: str | Path) -> str:
    """Return a path as a string. Raise TypeError for another value, or an empty string."""
    if not isinstance(value, str | Path) or not str(value):
        raise TypeError(f"[{place}] {name}: expected a string or a path, got {value!r}")
    return str(value)


def step_or_best(place: str, step: int | Literal["best"] | None) -> int | Literal["best"] | None:
    """Return a step, which may be an integer of NumPy, as an int; "best" and None unchanged. Raise TypeError else."""
    if step is None or step == "best":
        return step
    if isinstance(step, bool) or not hasattr(step, "__index__"):
        raise TypeError(f'[{place}] step: expected a whole number, "best" or None, got {step!r}')
    return index(step)
