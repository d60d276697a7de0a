"""Follow the path of --workdir through cli/ and run/, and print the modules that pass it on.

    python tests/python/workdir_walk.py --config=tiny.py --workdir=/tmp/walk train.steps=4

A hand-over is a path at or below the work directory, as a string or a Path, that one module passes to another: as an
argument, as a return value, or as the attribute `path` of a RunFolder. The walk ends in base/ and checkpoint/, which
read and write files. The string of a message (`__str__`) is no hand-over.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

PACKAGES = ("mudd_core.cli.", "mudd_core.run.")


class Walk:
    """The hand-overs (giver, taker) of a path in order, each with its first place."""

    def __init__(self, path: Path) -> None:
        self._path = str(path.resolve())
        self.hands: dict[tuple[str, str], str] = {}

    def follow(self, frame: FrameType, event: str, value: object) -> None:
        """Process an event of sys.setprofile."""
        here = frame.f_globals.get("__name__", "")
        if not here.startswith(PACKAGES) or frame.f_code.co_name in ("__str__", "<module>"):
            return
        if event == "call":
            code = frame.f_code
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            given = [name for name in names if self._is_below(frame.f_locals.get(name))]
            if given:
                self.hand(_module(frame.f_back), here, f"{code.co_qualname}({given[0]})")
        elif event == "return" and self._is_below(value):
            self.hand(here, _module(frame.f_back), frame.f_code.co_qualname)

    def hand(self, giver: str, taker: str, place: str) -> None:
        """Record a hand-over between two modules of the packages."""
        if giver != taker and giver.startswith(PACKAGES) and taker.startswith(PACKAGES):
            self.hands.setdefault((giver, taker), place)

    def _is_below(self, value: object) -> bool:
        text = str(value) if isinstance(value, str | Path) else ""
        return text == self._path or text.startswith(self._path + "/")

    def modules(self) -> list[str]:
        """Return the modules in the order in which they get the path."""
        return list(dict.fromkeys(module for hand in self.hands for module in hand))

    def returns(self) -> list[tuple[str, str]]:
        """Return the hand-overs to a module that had the path before."""
        found, seen = [], set[str]()
        for giver, taker in self.hands:
            if taker in seen:
                found.append((giver, taker))
            seen |= {giver, taker}
        return found


def _module(frame: FrameType | None) -> str:
    """Return the module of the package that called a frame, skipping frames of other packages."""
    while frame is not None:
        name: str = frame.f_globals.get("__name__", "")
        if name.startswith("mudd_core."):
            return name
        frame = frame.f_back
    return ""


def _see_attribute(walk: Walk) -> None:
    """Let the walk record the readers of RunFolder.path."""
    from mudd_core.run.store.run_folder import RunFolder

    plain = RunFolder.__getattribute__

    def read(folder: RunFolder, name: str) -> object:
        if name == "path":
            walk.hand(RunFolder.__module__, _module(sys._getframe(1)), "RunFolder.path")
        return plain(folder, name)

    RunFolder.__getattribute__ = read  # type: ignore[method-assign,assignment]


def walk_of(words: Sequence[str]) -> Walk:
    """Train with these arguments up to step 2, then resume to the end, and follow the path of --workdir."""
    from mudd_core.cli import main

    named = next(word for word in words if word.startswith("--workdir="))
    walk = Walk(Path(named.removeprefix("--workdir=")))
    _see_attribute(walk)
    for more in (["train.stop_at=2"], []):
        sys.setprofile(walk.follow)
        try:
            main([*words, *more])
        finally:
            sys.setprofile(None)
    return walk


if __name__ == "__main__":
    found = walk_of(sys.argv[1:])
    for (giver, taker), place in found.hands.items():
        print(f"walk: {giver.removeprefix('mudd_core.')} -> {taker.removeprefix('mudd_core.')}: {place}")
    back = "".join(f"\nwalk: {giver} -> {taker}: it had the path before" for giver, taker in found.returns())
    print(f"walk: {len(found.modules())} modules, {len(found.returns())} returns{back}")
