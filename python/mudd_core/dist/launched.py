"""The Comm of a process that mpirun or srun started."""

from __future__ import annotations

import atexit
import os
import sys

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import PROCESS_COUNTS, launcher_number
from mudd_core.dist.comm import LONGEST_MESSAGE, Comm, alone

# Set by Open MPI's mpirun, by PMIx (srun --mpi=pmix), by PMI.
LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK")
# Windows of a node below this much shared memory are not worth having.
_LEAST_SHARED = 128 << 20
_LAST_PATIENCE = 2.0  # seconds, for ranks that end without close()


def launched(
    *,
    node: str = "host",
    debug: bool = False,
    hang_timeout: float = 0.0,
    longest_message: int = LONGEST_MESSAGE,
    shared_bytes: int = 0,
) -> Comm:
    """Return this process's rank of the job that a launcher started, or `alone()` where none did.

    node: "host", or "rank" to make every rank a node of its own, which exchanges messages in place of memory.
    hang_timeout: seconds without a sign of life until the job ends with exit code 70; 0: never.
    shared_bytes: shared memory that a node will need; with less, every rank is a node of its own.
    UserError where the launcher started more processes than MPI knows of. Only one call in a process.
    """
    if node not in ("host", "rank"):
        raise UserError(f"[dist] node: expected host or rank, got '{node}'")
    if not any(name in os.environ for name in LAUNCHERS):
        _check_world(1)
        return alone()
    try:
        from mudd_core import _mpi
    except ImportError as error:
        raise UserError(
            f"[ranks] started by mpirun, but mudd_core has no Open MPI ({error}); "
            "apt-get install libopenmpi-dev openmpi-bin, then ./run setup"
        ) from None
    transport = _mpi.transport(node == "rank", max(shared_bytes, _LEAST_SHARED))
    try:
        core, warning = _core.join_ranks(transport, debug, hang_timeout, longest_message)
    except RuntimeError as error:
        raise UserError(str(error)) from None
    comm = Comm(core, debug)
    atexit.register(comm.close, _LAST_PATIENCE)
    _check_world(comm.world)
    if warning and comm.rank == 0:
        print(warning, file=sys.stderr, flush=True)
    return comm


def _check_world(world: int) -> None:
    """Refuse processes that do not know of each other: each would train alone and write the same files."""
    for name in PROCESS_COUNTS:
        count = os.environ.get(name, "")
        if world == 1 and launcher_number(count) > 1:
            raise UserError(
                f"[ranks] {name}={count}, but MPI knows of one process; start with mpirun or srun --mpi=pmix "
                f"(docs/cluster.md), or unset {name} to train in one process"
            )
