"""The program and the machine of a run, as a start records them, and the measured peak of the machine."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path

import mudd_core
from mudd_core import _core
from mudd_core.base.surroundings import typed_arguments
from mudd_core.base.types import JsonObject

MACHINE = "machine"  # key in the events of a start and a resume
COMMAND = "command"  # key in the same events: the arguments of the command line, absent in a Python program
MODULES = "modules"  # key in the machine: a hash of the extension modules
PEAK_MEMORY = "peak_memory"  # key in the events of a save and an end: bytes
CHECKOUT = Path(mudd_core.__file__).resolve().parents[2]
_EXTENSIONS = ("_core", "_h5", "_mpi")


def machine_facts() -> JsonObject:
    """Return version, commit of a checkout, CPU, instruction set level, threads in use, and the hash of the modules."""
    commit = commit_of(CHECKOUT)
    return {
        "version": mudd_core.__version__,
        **({"commit": commit} if commit else {}),
        "cpu": _core.cpu_name(),
        "level": _core.isa(),
        "threads": _core.num_threads(),
        MODULES: modules_sha256(),
    }


def command_facts() -> JsonObject:
    """Return the arguments of the command line that this process runs; empty in a Python program."""
    words = typed_arguments()
    return {} if words is None else {COMMAND: [*words]}


@functools.cache
def modules_sha256() -> str:
    """Return a SHA-256 over name and bytes of the built extension modules, in the order of their names."""
    digest, folder = hashlib.sha256(), Path(_core.__file__).parent
    for name in _EXTENSIONS:
        for file in sorted(folder.glob(f"{name}.*.so")):
            digest.update(f"{file.name.partition('.')[0]}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


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
