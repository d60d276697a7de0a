"""How ranks join and leave: ranks that differ or never arrive end the job; calls after a rank has left raise."""

from __future__ import annotations

import ctypes.util
import threading
import time
from pathlib import Path

import pytest

from mpi_ranks import mpirun, needs_mpi
from mudd_core import _core, dist
from mudd_core.base.errors import UserError
from mudd_core.base.surroundings import started_processes
from mudd_core.cli import main
from rank_faults import MPIRUN, run_of

CALLS = ("barrier", "all_gather", "broadcast")
LEAVE = """
import os, sys, time
from mudd_core import _core, dist
comm = dist.launched(node=sys.argv[1])
comm.barrier()
if comm.rank == 1:
    comm.close(0.5)
    time.sleep(6)
    os._exit(0)
time.sleep(1.5)
for call in (comm.barrier, lambda: comm.all_gather(b"abc"), lambda: comm.broadcast(b"abc", 0)):
    try:
        print("returned", call(), flush=True)
    except _core.PeerError as error:
        print(error, flush=True)
os._exit(0)
"""


ORDER = """
import os, sys
from mudd_core import dist
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    sys.byteorder = "big"
dist.launched()
print("joined", flush=True)
os._exit(0)
"""


def call(comm: dist.Comm, name: str) -> None:
    if name == "barrier":
        comm.barrier()
    elif name == "all_gather":
        comm.all_gather(b"abc")
    else:
        comm.broadcast(b"abc", comm.rank)


@pytest.mark.parametrize("node_size", [1, 2])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_after_a_rank_has_left_raises(name: str, node_size: int) -> None:
    stays, leaves = dist.threads(2, node_size)
    thread = threading.Thread(target=leaves.close, args=(0.2,), daemon=True)
    thread.start()
    thread.join()
    with pytest.raises(_core.PeerLeftError, match="rank 1 has left the job"):
        call(stays, name)
    with pytest.raises(_core.PeerLeftError, match="rank 1 has left the job"):
        call(leaves, name)
    assert issubclass(_core.PeerLeftError, _core.PeerError)


@pytest.mark.parametrize("node_size", [1, 2])
def test_what_a_rank_did_before_it_left_counts(node_size: int) -> None:
    comms = dist.threads(2, node_size)
    got: list[bytes] = []

    def run(comm: dist.Comm) -> None:
        for number in range(50):
            got.append(comm.broadcast(bytes([number]), number % 2))
        comm.close(5.0)

    threads = [threading.Thread(target=run, args=(comm,), daemon=True) for comm in comms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(got) == 100


@needs_mpi
@pytest.mark.parametrize("node", ["host", "rank"])
def test_a_call_after_a_process_has_left_raises(node: str) -> None:
    _, out, errors = mpirun(2, LEAVE, node)
    assert out.count("rank 1 has left the job") == 3 and "returned" not in out, out + errors


@needs_mpi
def test_ranks_of_another_byte_order_are_named() -> None:
    code, out, errors = mpirun(2, ORDER)
    assert code and "joined" not in out and "[ranks] rank 1 on " in errors, out + errors
    assert "expected byte order=little as on rank 0" in errors and "got byte order=big" in errors, errors


@needs_mpi
def test_ranks_that_differ_in_dist_node_are_named(tiny_text: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", tiny_text, prefix=(*MPIRUN, "-n", "1"))
    alone = run.command()[len(run.prefix) :]
    run.words = (*run.words, ":", "-n", "1", *alone, "dist.node=rank")
    assert run.finish() == 2, run.tail
    assert "[ranks] rank 1 on " in run.output and "expected dist.node=host as on rank 0" in run.output, (
        run.tail
    )
    assert "got dist.node=rank" in run.output and run.output.count("error:") == 1
    assert not run.workdir.exists()


FOREIGN = {
    "with MPI": "import ctypes, time\nm = ctypes.CDLL('libmpi.so.40', mode=ctypes.RTLD_GLOBAL)\n"
    "m.MPI_Init(None, None)\ntime.sleep(60)\n",
    "without": "import time\ntime.sleep(60)\n",
}


@needs_mpi
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_rank_that_runs_another_program_is_named(kind: str) -> None:
    if kind == "with MPI" and ctypes.util.find_library("mpi") is None:
        pytest.skip("libmpi is not on the library path")
    program = (
        "import os, sys\n"
        "if os.environ['OMPI_COMM_WORLD_RANK'] == '1':\n"
        f"    os.execv(sys.executable, ['other', '-c', {FOREIGN[kind]!r}])\n"
        "from mudd_core import dist\nfrom mudd_core.base.errors import UserError\n"
        "sys.modules['mudd_core.dist.launched']._AGREEMENT_SECONDS = 0.5 if sys.argv[1] == 'without' else 20\n"
        "try:\n    dist.launched(join_timeout=2)\n"
        "except UserError as error:\n    print(error, file=sys.stderr, flush=True)\n    os._exit(2)\n"
    )
    began = time.monotonic()
    code, _, errors = mpirun(2, program, kind)
    assert code == 2, errors
    assert "joined within 2 s" in errors or "started to join within 2.5 s" in errors, errors
    assert "rank 1 runs 'other " in errors and time.monotonic() - began < 40


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"OMPI_COMM_WORLD_SIZE": "abc"}, "OMPI_COMM_WORLD_SIZE"),
        ({"OMPI_COMM_WORLD_SIZE": "-1"}, "OMPI_COMM_WORLD_SIZE"),
        ({"OMPI_COMM_WORLD_SIZE": ""}, "OMPI_COMM_WORLD_SIZE"),
        ({"OMPI_COMM_WORLD_SIZE": "\u00b2"}, "OMPI_COMM_WORLD_SIZE"),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "0"}, "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "x"}, "OMPI_COMM_WORLD_LOCAL_RANK"),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "2"}, "OMPI_COMM_WORLD_RANK"),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}, "OMPI_COMM_WORLD_LOCAL_SIZE"),
        (
            {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "2"},
            "OMPI_COMM_WORLD_LOCAL_RANK",
        ),
        ({"PMI_SIZE": "2", "PMI_RANK": "2"}, "PMI_RANK"),
    ],
)
def test_odd_variables_of_a_launcher_are_named(
    variables: dict[str, str],
    named: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["--config=tiny.py", f"--workdir={tmp_path / 'run'}"]) == 2
    assert f"[launch] {named}: expected" in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_good_variables_of_a_launcher_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SIZE": "4", "RANK": "3", "LOCAL_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    assert started_processes() == ("OMPI_COMM_WORLD_SIZE", 4)
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "2")
    with pytest.raises(
        UserError, match="LOCAL_RANK: expected at most 1 with OMPI_COMM_WORLD_LOCAL_SIZE=2, got 2"
    ):
        started_processes()
