"""The cores of this process: its binding, the quota of its control group, its threads, and a launcher's processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import is_rank, launcher_number, require_one_process
from mudd_core.run.build.start_warnings import of_threads
from mudd_core.run.ranks.rank_cores import usable_cores, widen_binding
from mudd_core.tools.doctor.finding import Finding, Level, from_message


def findings(place: Path) -> Iterator[Finding]:
    """Yield the cores that a training may use, and what keeps others from it."""
    yield from _launcher()
    machine, bound, usable = os.cpu_count() or 1, len(os.sched_getaffinity(0)), usable_cores()
    threads = _core.num_threads()
    yield Finding(Level.OK, f"{usable} of {machine} cores usable, {threads} threads")
    if bound < machine:
        yield Finding(
            Level.WARNING,
            f"the process is bound to {bound} of {machine} cores",
            f"taskset -c 0-{machine - 1} <the command>, or ask the launcher for more cores",
        )
    if usable < bound:
        yield Finding(
            Level.WARNING,
            f"the quota of the control group allows {usable} of {bound} cores",
            f"raise it: docker run --cpus={bound}, or resources.limits.cpu: {bound} in Kubernetes",
        )
    text = os.environ.get("OMP_NUM_THREADS")
    if text is not None and min(map(launcher_number, text.replace(" ", "").split(","))) < 1:
        yield Finding(
            Level.WARNING,
            f"OMP_NUM_THREADS: expected whole numbers from 1, got '{text}', which is ignored",
            f"export OMP_NUM_THREADS={usable}",
        )
    for warning in of_threads(threads):
        yield from_message(Level.WARNING, warning)
    if threads < usable:
        yield Finding(
            Level.WARNING,
            f"{threads} thread{'s' * (threads > 1)} leave{'s' * (threads == 1)} cores idle, {usable} are usable",
            f"set train.threads={usable}, or export OMP_NUM_THREADS={usable}",
        )


def _launcher() -> Iterator[Finding]:
    """Yield what a start refuses of a launcher's variables, and take the cores that mpirun leaves a training."""
    try:
        if not is_rank():
            require_one_process()
        widen_binding(0)
    except UserError as error:
        yield from_message(Level.FAULT, error)
