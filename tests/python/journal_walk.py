"""Count the modules that run while training logs one step, and while it logs one generated sample of sample.every.

    python tests/python/journal_walk.py --config=tiny.py --workdir=/tmp/walk

A walk starts when the loop reports the step (`took_step`) or the sample (`sampled`), and ends when that call returns. A
module of mudd_core is in the walk if one of its functions runs in between. The first report of each kind, which opens
files, is left out. At commit 39b479c0 a step passed 15 modules and a sample 13.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType

REPORTS = ("took_step", "sampled")
SETTINGS = ("train.steps=4", "train.log_every=1", "train.eval_every=2", "sample.every=2")
_LOOP = ("mudd_core.run.loop.training_loop", "mudd_core.run.loop.validator")


class Walks:
    """The modules of each kind of report, in the order in which they run."""

    def __init__(self) -> None:
        self.modules: dict[str, dict[str, None]] = {name: {} for name in REPORTS}
        self._made: set[tuple[str, str]] = set()  # reports after the first one, with their module
        self._inside: tuple[str, FrameType] | None = None  # the current report, and its frame

    def follow(self, frame: FrameType, event: str, value: object) -> None:
        """Process an event of sys.setprofile."""
        here = frame.f_globals.get("__name__", "")
        if event == "return" and self._inside is not None and self._inside[1] is frame:
            self._made.add((self._inside[0], here))
            self._inside = None
        if event != "call" or not here.startswith("mudd_core."):
            return
        if self._inside is None and (outer := _reported(frame)):
            self._inside = (frame.f_code.co_name, outer)
        if self._inside is not None:
            name, outer = self._inside
            module = outer.f_globals["__name__"]
            if (name, module) in self._made:
                self.modules[name].setdefault(module)
                self.modules[name].setdefault(here)


def _reported(frame: FrameType) -> FrameType | None:
    """Return the call by which the loop reports something, if this frame is that call or the first one inside it."""
    if frame.f_code.co_name not in REPORTS:
        return None
    for outer in (frame, frame.f_back):
        if outer is not None and outer.f_back is not None:
            caller = outer.f_back.f_globals.get("__name__", "")
            if caller in _LOOP and not outer.f_globals.get("__name__", "").startswith("mudd_core.run.loop."):
                return outer
    return None


def walks_of(words: Sequence[str]) -> Walks:
    """Train with these arguments for four logged steps with two samples, and follow the reports."""
    from mudd_core.cli import main

    walks = Walks()
    sys.setprofile(walks.follow)
    try:
        main([*words, *SETTINGS])
    finally:
        sys.setprofile(None)
    return walks


if __name__ == "__main__":
    for report, modules in walks_of(sys.argv[1:]).modules.items():
        print(f"walk: {report}: {len(modules)} modules: {' '.join(modules)}")
