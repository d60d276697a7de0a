"""The original programs. Each is a folder of mudd_core/programs, found by its name like a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Generic, TypeVar

_FOLDER = Path(__file__).parents[1] / "programs"

NAMES = tuple(sorted(file.parent.name for file in _FOLDER.glob("*/__init__.py")))
"""The values of log.style that follow a program."""


_Part = TypeVar("_Part")


class Programs(Generic[_Part]):
    """The original programs, for a layer that reads the part `_Part` of each."""

    def named(self, name: str) -> _Part | None:
        """Return the program of this name; None if there is none.

        A program is imported on first use, so a run without original programs imports none.
        """
        if name not in NAMES:
            return None
        program: _Part = import_module(f"mudd_core.programs.{name}").PROGRAM
        return program

    def __iter__(self) -> Iterator[_Part]:
        for name in NAMES:
            program = self.named(name)
            assert program is not None
            yield program
