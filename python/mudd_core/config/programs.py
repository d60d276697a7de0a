"""The original programs: each is a folder of mudd_core/programs, found by its name, as pipelines are found."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

_FOLDER = Path(__file__).parents[1] / "programs"

NAMES = tuple(sorted(file.parent.name for file in _FOLDER.glob("*/__init__.py")))
"""The values of log.style that follow a program."""


@cache
def program_module(name: str) -> ModuleType | None:
    """Return the module whose PROGRAM is the program of this name; None for a name that is none.

    The layers below mudd_core.programs ask here, and each declares the part of a program that it reads. A program is
    imported when it is first asked for, so that a run without one imports none.
    """
    return import_module(f"mudd_core.programs.{name}") if name in NAMES else None
