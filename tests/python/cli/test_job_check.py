"""The checks of launch.py --ranks before it starts mpirun, and the cause that it reports when a job ends."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from mpi_ranks import needs_mpi
from mudd_core.base.errors import UserError
from mudd_core.cli.job_check import cause, require_files, require_hosts, require_network, require_proc
from mudd_core.cli.mpirun import Job
from mudd_core.cli.mpirun_process import Mpirun
from mudd_core.dist.siblings import children
from tiny_run import ROOT

LOST = "mpirun noticed that process rank 1 with PID 0 on node b exited on signal 9 (Killed)."


def nobody(_: Sequence[str]) -> tuple[str, ...]:
    return ()


@needs_mpi
def test_too_few_file_descriptors_are_refused_before_mpirun_hangs(tmp_path: Path) -> None:
    line = f"ulimit -n 40; exec {sys.executable} {ROOT}/launch.py --config=tiny.py --ranks=2 --workdir={tmp_path}/run"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, timeout=30, check=False, env=env
    )
    assert done.returncode == 2, done.stderr
    assert "[launch] open files: expected a limit of 80 for 2 ranks on a host, got 40" in done.stderr
    assert "mpirun -n" not in done.stderr


def test_a_low_soft_limit_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (24, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: given.append(limits))
    require_files(Job(8, ("a", "b")))
    assert given == [(96, 4096)]


def test_no_interface_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    require_network()
    monkeypatch.setattr(socket, "if_nameindex", list)
    with pytest.raises(UserError, match=r"expected an interface that is up, got none.*ip link set lo up"):
        require_network()


def test_a_machine_without_proc_is_named(tmp_path: Path) -> None:
    require_proc()
    with pytest.raises(
        UserError, match="expected the process file system, got none; mount it: mount -t proc"
    ):
        require_proc(tmp_path)


@needs_mpi
def test_ranks_without_proc_are_refused_before_mpirun_fails(tmp_path: Path) -> None:
    line = f"mount -t tmpfs none /proc && exec {sys.executable} {ROOT}/launch.py --config=tiny.py --ranks=2"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f"{line} --workdir={tmp_path}/run"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    if "launch" not in done.stderr:
        pytest.skip(f"no right to replace /proc here: {done.stderr[:100]}")
    assert done.returncode == 2 and "[launch] /proc: expected the process file system" in done.stderr


def test_a_temporary_folder_without_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"temporary folder: No such file.*TMPDIR="):
        Mpirun(["true"])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    full = os.statvfs_result((4096, 4096, 100, 3, 3, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(UserError, match="expected 1024 KiB free for mpirun, got 12 KiB"):
        Mpirun(["true"])
    assert list(tmp_path.iterdir()) == []


def test_a_lost_rank_is_named_from_the_message_of_mpirun() -> None:
    code, text = cause(137, LOST, (), nobody)
    assert code == 137 and text.startswith("[launch] rank 1 on b was ended by SIGKILL")
    assert "memory may have run out" in text and "resumes" in text
    heard = (
        "[ranks] at the end: rank {} (another node), last message in step {} ({}), the next one is awaited\n"
    )
    others = (
        heard.format(1, 4, "verdict") + heard.format(1, 5, "gather, mesh.fsdp") + heard.format(2, 6, "reduce")
    )
    assert (
        "by a crash, last heard from in step 5 (gather, mesh.fsdp); "
        in cause(137, others + LOST, (), nobody)[1]
    )
    assert "mpirun was killed" in cause(137, "", (), nobody)[1]
    assert cause(70, "", (), nobody) == (70, "")
    unable = "mpirun was unable to start the specified application as it encountered an error:"
    assert "could not start the ranks" in cause(131, unable, (), nobody)[1]


def test_hosts_that_do_not_answer_are_named_with_exit_code_2() -> None:
    code, text = cause(255, "ORTE was unable", ("a", "b"), lambda _: ("a",))
    assert code == 2 and text.startswith("[launch] --hosts: b: expected an answer") and "ssh b true" in text
    assert cause(255, "", ("a",), lambda hosts: tuple(hosts))[0] == 255


def test_silent_hosts_are_refused_before_mpirun_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"--hosts: b\.invalid: expected an answer .* ssh b\.invalid true"):
        require_hosts(("a", "b.invalid"), lambda _: ("a",))
    require_hosts(
        ("127.0.0.1", "localhost", "a"), lambda _: ("a",)
    )  # mpirun starts these ranks without a remote shell
    require_hosts((), nobody)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    require_hosts(("b.invalid",), nobody)


@needs_mpi
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stop_ends_the_remote_shells_that_wait(number: signal.Signals, tmp_path: Path) -> None:
    """Use a remote shell that answers once and then waits, like ssh when the network loses the host later."""
    shell = tmp_path / "waiting-shell"
    shell.write_text('#!/bin/sh\n[ "$2" = true ] && exit 0\necho $$ >>started\nwhile :; do sleep 1; done\n')
    shell.chmod(0o755)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMPI_MCA_plm_rsh_agent": str(shell)}
    argv = [
        sys.executable,
        str(ROOT / "launch.py"),
        "--config=tiny.py",
        "--ranks=2",
        "--hosts=a.invalid,b.invalid",
    ]
    job = subprocess.Popen([*argv, "--workdir=run"], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)
    started, end = tmp_path / "started", time.monotonic() + 30
    while not started.exists() or len(started.read_text().split()) < 2:
        assert job.poll() is None and time.monotonic() < end
        time.sleep(0.05)
    if number == signal.SIGKILL:  # kill mpirun, not the job
        number = signal.SIGTERM
        for process in children(job.pid):
            os.kill(process, signal.SIGKILL)
    job.send_signal(number)
    shells = [int(process) for process in started.read_text().split()]
    try:
        job.communicate(timeout=30)  # returns at the end of the pipe, which a remaining shell would keep open
        states = [Path(f"/proc/{process}/stat") for process in shells]
        assert all(not state.exists() or ") Z " in state.read_text() for state in states)
    finally:
        for process in shells:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@needs_mpi
def test_a_host_without_a_shell_is_named(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMPI_MCA_plm_rsh_agent": "false"}
    argv = [
        sys.executable,
        str(ROOT / "launch.py"),
        "--config=tiny.py",
        "--ranks=2",
        "--hosts=a.invalid,b.invalid",
    ]
    done = subprocess.run(
        [*argv, f"--workdir={tmp_path}/run"], capture_output=True, text=True, timeout=60, check=False, env=env
    )
    assert done.returncode == 2, done.stderr
    assert "[launch] --hosts: a.invalid, b.invalid: expected an answer" in done.stderr
    assert "mpirun -n" not in done.stderr
