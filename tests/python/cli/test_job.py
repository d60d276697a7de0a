"""`launch.py --ranks`: the mpirun command, signals, exit codes and restarts, mostly with a fake for the ranks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.cli.argv import parse
from mudd_core.cli.job import JobRequest, answering, on_hosts, requested_job
from mudd_core.cli.mpirun import Job, Machine, cma_allowed, known_hosts, mpirun_argv, this_machine, threads_of
from tiny_run import ROOT

pytestmark = pytest.mark.usefixtures("hangs_up")

TINY = "--config=tiny.py"
BIG = Machine("/opt/mpi/bin/mpirun", cores=64, threads=64)


def argv(job: Job, machine: Machine = BIG, *environment: str) -> str:
    return " ".join(mpirun_argv(job, machine, ["python", "launch.py"], environment))


def test_ranks_get_their_share_of_the_cores_and_are_bound_to_it() -> None:
    assert argv(Job(4)) == (
        "/opt/mpi/bin/mpirun -n 4 --bind-to core --map-by slot:PE=16 -x OMP_NUM_THREADS=16 python launch.py"
    )
    assert "slot:PE=8 -x OMP_NUM_THREADS=8" in argv(Job(4, threads=8))
    assert threads_of(Job(6), BIG) == 10 and threads_of(Job(128), BIG) == 1


@pytest.mark.parametrize(
    ("job", "machine"),
    [
        (Job(4, threads=32), BIG),  # more threads than cores
        (Job(4), Machine("mpirun", cores=64, threads=64, whole=False)),  # the user has set a CPU mask
        (Job(4), Machine("mpirun", cores=4, threads=8)),  # two hardware threads per core
    ],
)
def test_ranks_are_left_unbound_where_cores_do_not_suffice(job: Job, machine: Machine) -> None:
    assert "--bind-to none" in argv(job, machine) and "PE=" not in argv(job, machine)


def test_more_ranks_than_cores_yield_to_each_other() -> None:
    text = argv(Job(4), Machine("mpirun", cores=2, threads=2))
    assert "--oversubscribe --mca mpi_yield_when_idle 1 -x OMP_NUM_THREADS=1" in text
    assert "--oversubscribe" not in argv(Job(2), Machine("mpirun", cores=2, threads=2))


def test_root_and_a_kernel_that_refuses_copies_between_processes_get_their_flags() -> None:
    text = argv(Job(2), Machine("mpirun", cores=2, threads=2, root=True, cma=False))
    assert "--allow-run-as-root" in text and "--mca btl_vader_single_copy_mechanism none" in text
    assert "root" not in argv(Job(2)) and "vader" not in argv(Job(2))
    assert cma_allowed() in (True, False)


def test_hosts_get_slots_and_the_variables_that_decide_a_run() -> None:
    text = argv(Job(6, ("a", "b"), threads=4), BIG, "MUDD_MAX_ISA", "PYTHONPATH", "OMP_NUM_THREADS", "HOME")
    assert "--host a:3,b:3" in text and "-x PYTHONPATH -x MUDD_MAX_ISA -x OMP_NUM_THREADS=4" in text
    assert "HOME" not in text
    assert "--host a:2,b:2" in argv(Job(3, ("a", "b")))


def test_hosts_that_mpirun_knows_by_itself_are_counted(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("mudd-worker-0.mudd slots=1\n\n# spare\nmudd-worker-1.mudd slots=1\n")
    assert known_hosts({"OMPI_MCA_orte_default_hostfile": str(tmp_path / "hosts")}) == 2
    assert known_hosts({"SLURM_JOB_NUM_NODES": "4"}) == 4 and known_hosts({}) == 1
    assert "slot:PE=64" in argv(Job(2, spread=2)) and "--host" not in argv(Job(2, spread=2))


def test_the_words_of_the_job_are_taken_out_and_threads_are_looked_up() -> None:
    words = ["--ranks=4", "--config=tiny.py", "--hosts", "a,b", "--max-restarts=3", "train.threads=2"]
    assert requested_job(parse(words)) == JobRequest(
        Job(4, ("a", "b"), 2), ("--config=tiny.py", "train.threads=2"), 3
    )
    for spelt in (["--threads", "3"], ["--threads=3"], ["--config.train.threads=3"], ["++train.threads=3"]):
        assert requested_job(parse(["--ranks=2", *spelt])).job.threads == 3
    assert (
        requested_job(parse(["--ranks=2", "--threads=many"])).job.threads == 0
    )  # the ranks report this mistake


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--ranks=0"], "--ranks: expected a whole number from 1 to 1024, got '0'"),
        (["--ranks=two"], "got 'two'"),
        (["--ranks"], "--ranks: expected a value after it"),
        (["--hosts=a"], "--hosts: expected --ranks=N with it"),
        (["--ranks=1", "--hosts=a,b"], "--hosts: expected at most 1"),
        (["--ranks=2", "--hosts=-oProxyCommand=x"], "--hosts: expected names"),
        (["--ranks=2", "--hosts="], "--hosts: expected names separated by commas, got ''"),
        (["--ranks=4", "--hosts=a:2,b:2"], "got 'a:2,b:2'; ranks are distributed evenly"),
        (["--ranks=4", "--hosts=a,b,a"], "--hosts: a is named twice"),
        (["--ranks=4", "--hosts=a,b,c"], "4 ranks on 3 hosts are 2 on each, so that c would have none"),
        (["--ranks=2", "--max-restarts=-1"], "--max-restarts: expected a whole number"),
        (
            ["report", "--ranks=2", "--workdir=runs/a"],
            "--ranks: report has no use of ranks, because one process",
        ),
        (["data", "show", "--ranks=2", "--hosts=a"], "data show has no use of ranks, because one process"),
        (["mup", "--hosts=a,b", "--ranks=2"], "does all of it; leave out --hosts and --ranks"),
        (["--mode=report", "--ranks=2"], "report has no use of ranks"),
        (["scale", "--config=tiny.py", "--ranks=2"], "scale has no use of ranks"),
        (["--ranks=3", TINY], "[mesh] 3 ranks do not divide train.logical_shards=8: start 1, 2"),
        (["--ranks=2", TINY, "mesh.expert=2"], "[mesh] expert=2: transformer_pp has no experts"),
        (["--ranks=2", TINY, "mesh.data=4"], "[mesh] data 4 does not divide the 2 ranks"),
        (["--ranks=2", TINY, "--hosts=a,b", "mesh.data=4"], "[mesh] data 4 does not divide the 2 ranks"),
        (["--ranks=2", TINY, "train.step=4"], "did you mean 'train.steps'?"),
        (["validate", "--ranks=2", "--hosts=a,b"], "validate reads a run, and none is named"),
        (["export", "runs/a", "--ranks=2", "--hosts=a,b"], "--to is missing"),
        (["bakeoff", "--ranks=3"], "[mesh] 3 ranks do not divide train.logical_shards=8"),
    ],
)
def test_mistakes_are_named_and_nothing_is_started(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("started"))
    assert main(words) == 2
    assert says in capsys.readouterr().err


def test_without_open_mpi_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["--config=tiny.py", "--ranks=2"]) == 2
    said = capsys.readouterr().err
    assert "apt install libopenmpi-dev openmpi-bin" in said and "./run setup" in said


def test_a_smaller_world_divides_the_shards() -> None:
    four = Job(8, ("a", "b", "c", "d"))
    assert on_hosts(four, ("a", "b", "c", "d")) == four
    assert on_hosts(four, ("a", "c", "d")) == Job(4, ("a", "c", "d"))
    assert on_hosts(four, ("c",)) == Job(2, ("c",))
    assert on_hosts(four, ()) is None
    assert on_hosts(Job(8), ()) == Job(8)  # without hosts the ranks run on this one


def test_hosts_that_do_not_answer_are_left_out(tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\ntest "$1" != b || exit 255\nshift\nexec "$@"\n')
    agent.chmod(0o755)
    assert answering(["a", "b", "c"], [str(agent)]) == ("a", "c")
    with pytest.raises(UserError, match="No such file"):
        answering(["a"], [str(tmp_path / "none")])


def test_a_machine_without_ssh_starts_ranks_that_need_none() -> None:
    alone = Machine("mpirun", cores=2, threads=2, shell=False)
    assert "--mca plm isolated" in argv(Job(2), alone)
    assert "isolated" not in argv(Job(2)) + argv(Job(2, ("a", "b")), alone) + argv(Job(2, spread=2), alone)


# ---- with the real mpirun; each rank is a small script -----------------------------------------------------------

needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="Open MPI is not installed")


@needs_mpirun
def test_ranks_start_where_no_ssh_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mpirun", "true"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tmp_path))
    command = mpirun_argv(Job(2, threads=1), this_machine(), ["true"])
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


STARTER = """
import os, sys
from mudd_core.cli import argv, job
from mudd_core.cli.mpirun import Machine
machine = Machine({mpirun!r}, cores=2, threads=2, whole=False, root=os.geteuid() == 0)
sys.exit(job.run(job.requested_job(argv.parse(sys.argv[1:])), [sys.executable, {script!r}], machine))
"""


def start(folder: Path, script: str, *words: str) -> subprocess.Popen[str]:
    (folder / "rank.py").write_text(script)
    starter = STARTER.format(mpirun=shutil.which("mpirun"), script=str(folder / "rank.py"))
    return subprocess.Popen(
        [sys.executable, "-c", starter, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


@needs_mpirun
@pytest.mark.parametrize("code", [0, 2, 75, 76])
def test_the_code_of_the_ranks_is_kept(tmp_path: Path, code: int) -> None:
    found, output = ended(start(tmp_path, f"raise SystemExit({code})", "--ranks=2", "--max-restarts=2"))
    assert found == code and "; restart " not in output, output


WAITING = """
import os, signal, sys, time, pathlib
def stop(number, _):
    rank = os.environ["OMPI_COMM_WORLD_RANK"]
    pathlib.Path("got" + rank).write_text(signal.Signals(number).name)
    if rank == "0":  # as a rank of a run does: mpirun may lock itself after the ranks
        pathlib.Path(os.environ["MUDD_JOB_CODE"]).write_text("75")
    sys.exit(75)
for name in ("SIGUSR1", "SIGTERM", "SIGINT"):
    signal.signal(getattr(signal, name), stop)
pathlib.Path("ready" + os.environ["OMPI_COMM_WORLD_RANK"]).touch()
time.sleep(60)
"""


@needs_mpirun
@pytest.mark.parametrize("number", [signal.Signals(number) for number in _core.stop_signals()])
def test_every_stop_signal_reaches_the_ranks_as_usr1(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, WAITING, "--ranks=2", "--max-restarts=3")
    end = time.monotonic() + 30
    while not all((tmp_path / f"ready{rank}").exists() for rank in (0, 1)):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(number)
    code, output = ended(process)
    assert code == 75, output
    assert [(tmp_path / f"got{rank}").read_text() for rank in (0, 1)] == ["SIGUSR1", "SIGUSR1"]


@needs_mpirun
def test_a_stop_that_mpirun_loses_is_repeated(tmp_path: Path) -> None:
    """Let the ranks ignore the first USR1, so that mpirun's signal is lost."""
    late = WAITING.replace(
        "import os,", "import signal\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)\nimport os,"
    )
    late = late.replace(
        'for name in ("SIGUSR1"',
        'pathlib.Path("deaf" + os.environ["OMPI_COMM_WORLD_RANK"]).touch()\ntime.sleep(1)\nfor name in ("SIGUSR1"',
    )
    process = start(tmp_path, late, "--ranks=2")
    end = time.monotonic() + 30
    while not all((tmp_path / f"deaf{rank}").exists() for rank in (0, 1)):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    code, output = ended(process)
    assert code == 75, output


@needs_mpirun
def test_a_job_that_lost_a_rank_is_started_again(tmp_path: Path) -> None:
    script = """
import os, pathlib, signal
tries = len(list(pathlib.Path().glob("try*")))
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    pathlib.Path(f"try{tries}").touch()
    if tries < 2:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    code, output = ended(start(tmp_path, script, "--ranks=2", "--max-restarts=2"))
    assert code == 0 and output.count("; restart ") == 2, output
    assert "ended with code 137; restart 2 of 2 with 2 ranks" in output


@needs_mpirun
def test_restarts_end(tmp_path: Path) -> None:
    code, output = ended(start(tmp_path, "raise SystemExit(70)", "--ranks=2", "--max-restarts=1"))
    assert code == 70 and output.count("; restart ") == 1, output


@pytest.mark.parametrize(("last_words", "code"), [("", 137), ("echo 75 >$MUDD_JOB_CODE", 75)])
def test_an_mpirun_that_outlives_its_ranks_is_killed(tmp_path: Path, last_words: str, code: int) -> None:
    """Keep mpirun running after its ranks, as Open MPI 4.1.4 sometimes does when it waits for a lock forever.

    The exit code is the one that rank 0 left in a file, if there is one.
    """
    stuck = tmp_path / "mpirun"
    stuck.write_text(f"#!/bin/sh\nsleep 1 &\nwait $!\n{last_words}\nexec sleep 60\n")
    stuck.chmod(0o755)
    starter = STARTER.format(mpirun=str(stuck), script="none.py")
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", starter, "--ranks=2"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    assert done.returncode == code and "mpirun has not" in done.stderr, done.stderr
    assert time.monotonic() - begin < 15
