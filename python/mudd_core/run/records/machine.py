"""The program and the machine of a run, as a start records them, and the measured peak of the machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mudd_core
from mudd_core import _core
from mudd_core.base.types import JsonObject

MACHINE = "machine"  # key in the events of a start and a resume
PEAK_MEMORY = "peak_memory"  # key in the events of a save and an end: bytes
_CHECKOUT = Path(mudd_core.__file__).resolve().parents[2]


def machine_facts() -> JsonObject:
    """Return the version, the commit of a checkout, the CPU, the instruction set level, and the threads in use."""
    commit = commit_of(_CHECKOUT)
    return {
        "version": mudd_core.__version__,
        **({"commit": commit} if commit else {}),
        "cpu": _core.cpu_name(),
        "level": _core.isa(),
        "threads": _core.num_threads(),
    }


def commit_of(checkout: Path) -> str:
    """Return the first 12 digits of the commit checked out in a folder; empty if there is none.

    This reads git's files, because the git program may be missing. Uncommitted changes are not detected.
    """
    try:
        folder = checkout / ".git"
        if folder.is_file():  # the folder is a worktree
            folder = checkout / folder.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        head = (folder / "HEAD").read_text(encoding="utf-8").strip()
        name = head.removeprefix("ref:").strip()
        return (head if name == head else _commit_of_branch(folder, name))[:12]
    except (OSError, ValueError):
        return ""


def _commit_of_branch(folder: Path, name: str) -> str:
    """Return the commit of a branch; empty if it has none yet. folder: the folder that contains HEAD."""
    shared = folder / "commondir"
    common = folder / shared.read_text(encoding="utf-8").strip() if shared.is_file() else folder
    if (common / name).is_file():
        return (common / name).read_text(encoding="utf-8").strip()
    packed = common / "packed-refs"
    lines = packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), "")


TRIES = 3
"""Of a measurement, about 2 ms each: all of them together take no longer than one of 20 tries did."""

_AFTER_STEPS = (1, 2, 4, 8, 16, 32)


class Peak:
    """Peak FLOP/s, measured now and again after the first steps, because other work may disturb one measurement.

    measure: returns one measurement.
    """

    def __init__(self, measure: Callable[[], float]) -> None:
        self._measure = measure
        self._steps = 0
        self.flops = measure()

    def took_step(self) -> None:
        """Count a step, and measure again after some of the first ones."""
        self._steps += 1
        if self._steps in _AFTER_STEPS:
            self.flops = max(self.flops, self._measure())

    def fraction(self, flops: float) -> float:
        """Return a run's FLOP/s divided by the peak, at most 1.

        A faster run is itself the measurement of a higher peak.
        """
        self.flops = max(self.flops, flops)
        return flops / self.flops
