"""Ranks under mpirun: the same guarantees as for ranks that are threads (tests/cpp/comm*_test.cc), and how jobs end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from mpi_ranks import mpirun, mpirun_process, needs_mpi, window_files

pytestmark = needs_mpi

START = """
import os, sys, time
from mudd_core import _core, dist
"""


def ends(process: int) -> bool:
    """Return True if a process ends within 10 s; a zombie has ended too."""
    for _ in range(100):
        status = Path(f"/proc/{process}/stat")
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.1)
    return False


EXCHANGE = (
    START
    + """
comm = dist.launched(node=sys.argv[1], debug=sys.argv[2] == "debug", longest_message=1 << 18)
for size in (0, 3, 900_000):
    mine = bytes([65 + comm.rank]) * (size + comm.rank)
    assert comm.all_gather(mine) == [bytes([65 + r]) * (size + r) for r in range(comm.world)]
    for root in range(comm.world):
        assert comm.broadcast(mine, root) == bytes([65 + root]) * (size + root)
    comm.barrier()
sent = comm.counters()["control"]
mine = f"{comm.rank} {comm.world} {comm.nodes} {comm.node_size} {sent[0] > 0}"
everybody = comm.all_gather(mine.encode())
assert comm.close()
if comm.rank == 0:  # mpirun mixes what ranks write at once
    for line in everybody:
        print(line.decode())
"""
)


@pytest.mark.parametrize(("ranks", "node"), [(1, "host"), (2, "host"), (3, "rank"), (4, "host"), (4, "rank")])
def test_bytes_reach_every_rank(ranks: int, node: str) -> None:
    code, out, errors = mpirun(ranks, EXCHANGE, node, "debug" if ranks == 4 else "")
    assert code == 0, out + errors
    nodes = 1 if node == "host" else ranks
    sends = ranks > 1 and node == "rank"
    assert out.splitlines() == [f"{r} {ranks} {nodes} {ranks // nodes} {sends}" for r in range(ranks)]
    assert errors == "" and window_files() == []


def test_a_failing_rank_ends_the_job_with_its_code_and_one_message() -> None:
    program = (
        START
        + """
comm = dist.launched(node=sys.argv[1])
comm.set_phase("backward", 17)
if comm.rank == 1:
    comm.fail(76, "the gradient is gone")
try:
    comm.barrier()
except _core.PeerError:
    comm.close()
    sys.exit(70)
"""
    )
    for node in ("host", "rank"):
        began = time.monotonic()
        code, _, errors = mpirun(3, program, node)
        assert code == 76
        assert errors.count("the gradient is gone") == 1
        assert "in step 17 (backward) failed" in errors and "rank 1 (" in errors
        assert time.monotonic() - began < 30  # far more than needed; a hang would take a minute
        assert window_files() == []


def test_a_killed_rank_ends_the_job() -> None:
    program = (
        START
        + """
comm = dist.launched()
if comm.rank == 1:
    os.kill(os.getpid(), 9)
comm.barrier()
"""
    )
    code, _, _ = mpirun(2, program)
    assert code == 137
    assert window_files() == []


def test_a_stopped_rank_is_reported_with_the_phase_of_every_rank() -> None:
    program = (
        START
        + """
comm = dist.launched()
comm.watch(1.0)
comm.set_phase("forward" if comm.rank == 1 else "verdict", 5)
comm.barrier()
if comm.rank == 1:
    print(os.getpid(), flush=True)
    time.sleep(60)
try:
    comm.barrier()
except _core.PeerError:
    time.sleep(60)
"""
    )
    process = mpirun_process(2, program)
    assert process.stdout is not None
    stopped = int(process.stdout.readline())
    os.kill(stopped, signal.SIGSTOP)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 70
    assert "look first at rank 1 (" in errors and "in step 5 (forward)" in errors
    assert "in step 5 (verdict), waiting for others" in errors
    assert errors.count("no progress for 1 s") == 1
    assert ends(stopped)


def test_of_ranks_that_all_wait_the_one_that_came_least_far_is_named() -> None:
    program = (
        START
        + """
comm = dist.launched()
comm.watch(1.0)
comm.set_phase("gather", 5)
if comm.rank == 1:
    print(os.getpid(), flush=True)
else:
    time.sleep(0.5)
    comm.set_phase("reduce", 6)
try:
    comm.barrier()
    comm.barrier() if comm.rank != 1 else time.sleep(60)
except _core.PeerError:
    time.sleep(60)
"""
    )
    process = mpirun_process(2, program)
    assert process.stdout is not None
    stopped = int(process.stdout.readline())
    time.sleep(0.2)  # into the barrier, in which it waits
    os.kill(stopped, signal.SIGSTOP)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 70
    assert "look first at rank 1 (" in errors and "in step 5 (gather, mesh.fsdp)" in errors, errors
    assert ends(stopped)


def test_little_shared_memory_means_messages_and_one_warning() -> None:
    program = (
        START
        + """
comm = dist.launched(shared_bytes=1 << 50)
assert comm.node_size == 1 and comm.nodes == 2
assert comm.all_gather(b"x") == [b"x", b"x"]
comm.close()
"""
    )
    code, _, errors = mpirun(2, program)
    assert code == 0, errors
    assert errors.count("MiB free") == 1 and "--shm-size" in errors


def test_a_node_is_split_once_its_memory_is_too_small() -> None:
    program = (
        START
        + """
comm = dist.launched()
assert (comm.nodes, comm.node_size) == (1, 2) and 0 < comm.shared_bytes_free < 1 << 50
comm.split_nodes()
assert (comm.nodes, comm.node_size, comm.node_rank, comm.node) == (2, 1, 0, comm.rank)
assert comm.all_gather(b"xyz") == [b"xyz", b"xyz"] and comm.counters()["control"][0] > 0
comm.barrier()
comm.close()
"""
    )
    code, _, errors = mpirun(2, program)
    assert (code, errors) == (0, "") and window_files() == []


def test_open_mpi_gets_the_settings_of_its_tcp_unless_the_user_has_some() -> None:
    program = (
        START
        + """
import ctypes
comm = dist.launched(node="rank")
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
if comm.rank == 0:
    for name in (b"flags", b"max_send_size"):
        print((getenv(b"OMPI_MCA_btl_tcp_" + name) or b"").decode())
comm.close()
"""
    )
    want = ["send,inplace,need-ack,need-csum,hetero-rdma", "524288"]
    assert mpirun(2, program)[1].split() == want, "no puts, which keep the other direction waiting"
    assert mpirun(2, program, OMPI_MCA_btl_tcp_max_send_size="65536")[1].split() == [want[0], "65536"]


def test_processes_that_do_not_know_of_each_other_are_refused() -> None:
    program = (
        START
        + """
from mudd_core.base.errors import UserError
try:
    dist.launched()
except UserError as error:
    print(error)
    sys.exit(2)
"""
    )
    code, out, _ = mpirun(1, program, SLURM_NTASKS="4")
    assert code == 2
    assert "SLURM_NTASKS=4, but MPI reports one process" in out
