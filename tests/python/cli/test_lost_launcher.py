"""SIGKILL of launch.py or of mpirun: the ranks end too, shared memory is freed, and the same command resumes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from mpi_ranks import needs_mpi, ranks_of
from mudd_core.cli import mpirun_process
from mudd_core.cli.mpirun_process import Mpirun
from mudd_core.dist.siblings import children
from rank_faults import run_of
from tiny_run import TinyRun

MEMORY = Path("/dev/shm")
LONG = ("train.steps=500", "train.eval_every=500")  # longer than it takes to kill the process


@pytest.fixture(scope="module")
def whole(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """Return the unbroken run of one process."""
    return run_of(tmp_path_factory.mktemp("whole") / "run", tiny_text, *LONG).finished()


def segments(jobs: set[str]) -> list[str]:
    """Return the names of the files that Open MPI keeps in shared memory for these jobs."""
    # Another test may run a job at the same time: its files are ignored.
    own = [f".{job}." for job in jobs]
    return [file.name for file in MEMORY.iterdir() if any(job in file.name for job in own)]


def lives(process: int) -> bool:
    status = Path(f"/proc/{process}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ended_within(seconds: float, processes: list[int]) -> bool:
    end = time.monotonic() + seconds
    while any(map(lives, processes)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(lives, processes))


@needs_mpi
@pytest.mark.parametrize("victim", ["launch.py", "mpirun"])
def test_ranks_end_with_what_started_them(
    whole: TinyRun, tiny_text: Path, tmp_path: Path, victim: str
) -> None:
    jobs: set[str] = set()
    run = run_of(tmp_path / "run", tiny_text, *LONG, "--ranks=2")
    process = run.start()
    run.wait_for_step(process, 12)
    (mpirun,) = children(process.pid)
    ranks = list(ranks_of(run).values())
    assert len(ranks) == 2
    for rank in ranks:
        maps = Path(f"/proc/{rank}/maps").read_text()
        names = {line.split("/")[-1] for line in maps.splitlines() if "/vader_segment." in line}
        assert all(name.endswith("(deleted)") for name in names), "every rank has it: the name is gone"
        jobs.update(name.split(".")[-2] for name in names)
    assert len(jobs) == 1, "all ranks are of one job"
    os.kill(process.pid if victim == "launch.py" else mpirun, signal.SIGKILL)
    assert ended_within(15, [mpirun, *ranks]), run.tail
    process.wait(15)
    if victim == "mpirun":
        assert "[launch] mpirun was killed" in run.output, run.tail
    assert segments(jobs) == []
    rest = run_of(tmp_path / "run", tiny_text, *LONG, "--ranks=2")
    rest.finished()
    assert "resumes at step" in rest.output and rest.same_as(whole)


def test_segments_of_a_killed_mpirun_are_removed_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpirun_process, "_MEMORY", tmp_path)
    user = os.geteuid()
    own = [f"vader_segment.host.{user}.42520001.0", "osc_sm.host.42520001.0.5"]
    others = [
        f"vader_segment.host.{user}.42530001.0",
        f"vader_segment.host.{user + 1}.42520001.0",
        "x.vader_segment.",
        "mca_osc_sm.so",
        f"vader_segment.host.{user}.42520001.0.txt",
    ]
    for name in (*own, *others):
        (tmp_path / name).touch()
    script = (
        "d=$OMPI_MCA_orte_tmpdir_base/ompi.h.0/pid.1; mkdir -p $d; echo '1112670208.0;tcp:' >$d/contact.txt"
    )
    script += "; kill -9 $$"
    with Mpirun(["sh", "-c", script]) as mpirun:
        assert mpirun.process.wait(20) == -signal.SIGKILL
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(others)
    assert not mpirun.last_code.parent.exists()
