"""The CPU: its instruction set level, the cores of this process, and the OpenMP runtimes whose threads use them."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Iterator
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import is_rank, launcher_number, require_levels, require_one_process
from mudd_core.run.build.start_warnings import of_level, of_threads
from mudd_core.run.ranks.core_kinds import slow_cores_text
from mudd_core.run.ranks.other_load import OtherLoad, competing_text
from mudd_core.run.ranks.rank_cores import usable_cores, widen_binding
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.tools.doctor import Finding, Level, from_message

_LOAD_SECONDS = 0.5  # of the measurement of other processes
MAPS = Path("/proc/self/maps")
_RUNTIME = re.compile(r"/lib(gomp|iomp5|omp)[-.\w]*\.so[.\d]*$")


def level(place: Path) -> Iterator[Finding]:
    """Yield the level in use, and the reason if it is not the CPU's highest level."""
    try:
        require_levels()
    except UserError as error:
        yield from_message(Level.FAULT, error)
        return
    detected, used = _core.detected_isa(), _core.isa()
    yield Finding(Level.OK, f"{_core.cpu_name()}, level {used} of {', '.join(_core.isa_levels())}")
    if used != detected:
        yield Finding(
            Level.WARNING,
            f"MUDD_MAX_ISA limits the level to {used}, the CPU has {detected}",
            "unset MUDD_MAX_ISA",
        )
    for warning in of_level(detected, platform.machine()):
        yield Finding(Level.WARNING, from_message(Level.WARNING, warning).found, "train on a CPU with AVX2")


def cores(place: Path) -> Iterator[Finding]:
    """Yield the cores that a training may use, and the reason if it may not use the others."""
    yield from _launcher()
    machine, bound = os.cpu_count() or 1, len(os.sched_getaffinity(0))
    threads = Ranks().threads(0) or _core.num_threads()  # as a run chooses them
    usable, slow = usable_cores(), slow_cores_text()
    yield Finding(Level.OK, f"{usable} of {machine} cores usable, {threads} threads")
    if slow:
        yield Finding(Level.OK, from_message(Level.OK, slow).found)
    if bound < machine:
        yield Finding(
            Level.WARNING,
            f"the process is bound to {bound} of {machine} cores",
            f"taskset -c 0-{machine - 1} <the command>, or request more cores from the launcher",
        )
    if usable < (fast := len(os.sched_getaffinity(0))):
        yield Finding(
            Level.WARNING,
            f"the quota of the control group allows {usable} of {fast} cores",
            f"raise it: docker run --cpus={fast}, or resources.limits.cpu: {fast} in Kubernetes",
        )
    text = os.environ.get("OMP_NUM_THREADS")
    if text is not None and min(map(launcher_number, text.replace(" ", "").split(","))) < 1:
        yield Finding(
            Level.WARNING,
            f"OMP_NUM_THREADS: expected whole numbers from 1, got '{text}', which is ignored",
            f"export OMP_NUM_THREADS={usable}",
        )
    yield from _others(threads)
    for warning in of_threads(threads):
        yield from_message(Level.WARNING, warning)
    if threads < usable:
        yield Finding(
            Level.WARNING,
            f"{threads} thread{'s' * (threads > 1)} leave{'s' * (threads == 1)} cores idle, {usable} are usable",
            f"set train.threads={usable}, or export OMP_NUM_THREADS={usable}",
        )


def _others(threads: int) -> Iterator[Finding]:
    """Yield a warning if other processes need the cores of this process."""
    load = OtherLoad()
    time.sleep(_LOAD_SECONDS)
    if text := competing_text(load.take(), load.cores, threads):
        yield Finding(Level.WARNING, text, "end them (top shows them), or train when they have ended")


def _launcher() -> Iterator[Finding]:
    """Yield errors in a launcher's variables, and let this process use the cores that mpirun leaves for training."""
    try:
        if not is_rank():
            require_one_process()
        widen_binding(0)
    except UserError as error:
        yield from_message(Level.FAULT, error)


def openmp(place: Path) -> Iterator[Finding]:
    """Yield findings about the OpenMP runtimes that this process has loaded."""
    try:
        lines = MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        yield Finding(Level.WARNING, f"{MAPS} cannot be read ({error.strerror})", "mount /proc")
        return
    paths = {line.split(maxsplit=5)[-1] for line in lines}
    copies = sorted(path for path in paths if _RUNTIME.search(path))
    named = ", ".join(copies) or "none"
    if len(copies) > 1:
        yield Finding(
            Level.WARNING,
            f"{len(copies)} copies of OpenMP in one process, whose threads compete: {named}",
            "unset LD_PRELOAD; in Python, import mudd_core before packages that bring a copy",
        )
    else:
        yield Finding(Level.OK, f"{named}, {_core.num_threads()} threads")
