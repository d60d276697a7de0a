"""mudd_core.dist with ranks as threads, and the errors of wrong arguments; test_comm_mpi.py has processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from mudd_core import _core, dist
from mudd_core.base.errors import UserError
from mudd_core.dist.launched import LAUNCHERS


def on_ranks(ranks: list[dist.Comm], work: Callable[[dist.Comm], object]) -> list[object]:
    """Return the result or the error of `work` on every rank; an error fails the job."""
    results: list[object] = [None] * len(ranks)

    def run(comm: dist.Comm) -> None:
        try:
            results[comm.rank] = work(comm)
        except Exception as error:
            results[comm.rank] = error
            comm.fail(70, str(error))

    threads = [threading.Thread(target=run, args=(comm,)) for comm in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize(("world", "node_size"), [(1, 1), (3, 1), (4, 2), (4, 4)])
def test_bytes_of_any_length_reach_every_rank(world: int, node_size: int) -> None:
    def work(comm: dist.Comm) -> object:
        comm.set_phase("data", 3)
        mine = b"x" * (100 * comm.rank)
        gathered = [len(data) for data in comm.all_gather(mine)]
        root = comm.world - 1
        return gathered, len(comm.broadcast(mine, root)), comm.close()

    ranks = dist.threads(world, node_size, longest_message=64)
    assert [(comm.node, comm.node_rank) for comm in ranks] == [
        (r // node_size, r % node_size) for r in range(world)
    ]
    want = ([100 * r for r in range(world)], 100 * (world - 1), True)
    assert on_ranks(ranks, work) == [want] * world


def test_the_error_of_a_rank_reaches_the_others_with_phase_and_step() -> None:
    def work(comm: dist.Comm) -> None:
        comm.set_phase("save", 9)
        if comm.rank == 1:
            raise OSError("no space")
        comm.barrier()

    first, second = on_ranks(dist.threads(2), work)
    assert isinstance(first, _core.PeerError) and isinstance(second, OSError)
    assert str(first) == "[ranks] rank 1 in step 9 (save) failed: no space"


def test_debug_mode_names_the_python_lines_of_calls_that_differ() -> None:
    def work(comm: dist.Comm) -> None:
        if comm.rank == 0:
            comm.barrier()
        else:
            comm.all_gather(b"x")

    text = " ".join(str(result) for result in on_ranks(dist.threads(2, debug=True), work))
    line = work.__code__.co_firstlineno
    assert f"barrier at {__file__[-99:]}:{line + 2}" in text
    assert f"all_gather(8 bytes) at {__file__[-99:]}:{line + 4}" in text


def test_the_import_loads_no_mpi() -> None:
    imports = "import mudd_core, mudd_core.dist; mudd_core.dist.alone()"
    program = f"{imports}; print('libmpi' in open('/proc/self/maps').read())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_a_launcher_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*LAUNCHERS, "SLURM_NTASKS", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert dist.launched().world == 1
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert dist.launched().world == 1
    monkeypatch.setenv("SLURM_NTASKS", "4")
    with pytest.raises(UserError, match="SLURM_NTASKS=4, but MPI reports one process"):
        dist.launched()


def test_what_is_no_transport_of_this_version_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of this version"):
        _core.join_ranks(object(), False, 0.0, 1 << 30, "", 1.0)
    with pytest.raises(ValueError, match="chunk_bytes: expected 1 to 2"):
        dist.threads(2, longest_message=0)
    with pytest.raises(ValueError, match="phase: expected one of idle"):
        dist.alone().set_phase("lunch", 0)
    with pytest.raises(UserError, match="node: expected host or rank, got 'rack'"):
        dist.launched(node="rack")
