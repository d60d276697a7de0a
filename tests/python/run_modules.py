"""Counts the modules of mudd_core that run while something is done: how many files a reader has to follow."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType


class RunModules:
    """The modules whose functions run, in the order of their first call, each with the names of these functions.

    Bodies of modules and code that a dataclass generates do not count: nobody reads them to follow a call.
    """

    def __init__(self, packages: Sequence[str]) -> None:
        """packages: names of the packages whose modules count, such as mudd_core.cli."""
        self._packages = tuple(packages)
        self.functions: dict[str, dict[str, None]] = {}

    def follow(self, frame: FrameType, event: str, value: object) -> None:
        """Take in an event of sys.setprofile."""
        code, name = frame.f_code, frame.f_globals.get("__name__", "")
        if event != "call" or not code.co_filename.endswith(".py") or code.co_name == "<module>":
            return
        if any(name == package or name.startswith(f"{package}.") for package in self._packages):
            self.functions.setdefault(name, {})[code.co_qualname] = None

    def lines(self) -> list[str]:
        """One line for each module with its functions, then their number."""
        found = [f"walk: {name}: {', '.join(functions)}" for name, functions in self.functions.items()]
        return [*found, f"walk: {len(self.functions)} modules"]


@contextmanager
def run_modules(packages: Sequence[str]) -> Iterator[RunModules]:
    """Yield the modules of the packages that run inside the block."""
    found = RunModules(packages)
    sys.setprofile(found.follow)
    try:
        yield found
    finally:
        sys.setprofile(None)
