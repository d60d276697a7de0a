"""The Comm of a process that mpirun or srun started."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Iterator

from mudd_core import __version__, _core
from mudd_core.base.errors import ReportedElsewhereError, UserError
from mudd_core.base.packages import build_with_mpi
from mudd_core.base.surroundings import PROCESS_COUNTS, launcher_value
from mudd_core.dist import parent, siblings
from mudd_core.dist.comm import LONGEST_MESSAGE, Comm, alone

# Variables of Open MPI's mpirun, of PMIx (srun --mpi=pmix) and of PMI.
LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK")
# With less shared memory than this on a host, shared-memory windows are not worth their cost.
_LEAST_SHARED = 128 << 20
_LAST_PATIENCE = 2.0  # seconds to wait for ranks that end without close()
_JOIN_SECONDS = 60.0
_AGREEMENT_SECONDS = 20.0  # seconds after the limit, in which rank 0 can name the rank that differs


def launched(
    *,
    node: str = "host",
    debug: bool = False,
    hang_timeout: float = 0.0,
    join_timeout: float = _JOIN_SECONDS,
    longest_message: int = LONGEST_MESSAGE,
    shared_bytes: int = 0,
) -> Comm:
    """Return this process's rank of the job that a launcher started, or `alone()` without a launcher.

    node: "host", or "rank" to treat every rank as a separate host, which exchanges messages and not memory.
    hang_timeout: seconds without a sign of life until the job ends with exit code 70; 0: never. join_timeout: seconds
    in which all ranks must join, each with the same arguments here. shared_bytes: shared memory that a host will need;
    if the host has less, every rank is treated as a separate host. Raise UserError if the launcher started more
    processes than MPI knows of. If the ranks' arguments differ, raise UserError on rank 0 and ReportedElsewhereError on
    the others. Call this once in a process. If the launcher is killed, this process ends too.
    """
    if node not in ("host", "rank"):
        raise UserError(f"[dist] node: expected host or rank, got '{node}'")
    if not any(name in os.environ for name in LAUNCHERS):
        _check_world(1)
        return alone()
    parent.follow()
    try:
        from mudd_core import _mpi
    except ImportError as error:
        raise UserError(
            f"[ranks] started by mpirun, but mudd_core has no Open MPI ({error}); {build_with_mpi()}"
        ) from None
    transport = _mpi.transport(node == "rank", max(shared_bytes, _LEAST_SHARED))
    facts = {
        "mudd_core": __version__,
        "byte order": sys.byteorder,  # before the ranks send numbers
        "dist.node": node,
        "dist.debug": debug,
        "dist.join_timeout": join_timeout,
        "longest_message": longest_message,
        "shared_bytes": shared_bytes,
    }
    lines = "".join(f"{name}={value}\n" for name, value in facts.items())
    with _limited(join_timeout):
        try:
            core, warning = _core.join_ranks(
                transport, debug, hang_timeout, longest_message, lines, join_timeout
            )
        except _core.PeerError:
            raise ReportedElsewhereError(0, UserError.exit_code) from None
        except RuntimeError as error:
            raise UserError(f"{error}{siblings.others()}") from None
    comm = Comm(core, debug)
    atexit.register(comm.close, _LAST_PATIENCE)
    _check_world(comm.world)
    if warning and comm.rank == 0:
        print(warning, file=sys.stderr, flush=True)
    return comm


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """End the process with exit code 2 if the block hangs: MPI waits for ever for a rank that runs without MPI."""

    def give_up() -> None:
        if siblings.first():
            print(
                "error: [ranks] not all ranks have started to join within "
                f"{seconds + _AGREEMENT_SECONDS:g} s (dist.join_timeout={seconds:g}, and "
                f"{_AGREEMENT_SECONDS:g} s to agree): one runs another program, or hangs; start "
                f"every rank by the same command{siblings.others()}",
                file=sys.stderr,
                flush=True,
            )
        os._exit(UserError.exit_code)

    timer = threading.Timer(seconds + _AGREEMENT_SECONDS, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _check_world(world: int) -> None:
    """Raise UserError if the launcher started processes without MPI: each would train alone and write to one folder."""
    for name in PROCESS_COUNTS:
        count = launcher_value(name)
        if world == 1 and count is not None and count > 1:
            raise UserError(
                f"[ranks] {name}={count}, but MPI reports one process; start with mpirun or srun "
                f"--mpi=pmix (docs/cluster.md), or unset {name} to train in one process"
            )
    size = launcher_value(LAUNCHERS[0])
    if world > 1 and size is not None and size != world:
        raise UserError(
            f"[ranks] {LAUNCHERS[0]}: expected {world}, the ranks of MPI, got {size}; do not change "
            "the variables that mpirun sets"
        )
