"""Checks of this machine before mpirun starts, and the causes of failures that only mpirun reports."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import signal
import socket
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.cli.mpirun import Job

_FILES_OF_MPIRUN, _FILES_OF_A_RANK = 64, 8
_GET_FLAGS, _UP = 0x8913, 1  # SIOCGIFFLAGS, IFF_UP
_LOST = re.compile(r"process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+)")
# Messages of ranks about the loss of a rank on another node (dist/watchdog.cc).
_LAST_MESSAGE = r"\[ranks\] at the end: rank {} \(another node\), last message in step (\d+) \(([^)]+)\)"
# Exit codes of mpirun itself. The exit codes of ranks are 0 to 2, 65 to 76, and 128 or more after a signal.
_NOT_STARTED = (1, 213, 255)
_UNABLE = "mpirun was unable to start the specified application"
# If one of these is set, Open MPI reaches other hosts through a resource manager or the user's launcher.
_OTHER_STARTERS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "OMPI_MCA_plm")


def require_files(job: Job) -> None:
    """Raise the limit of open files to the number mpirun needs for this host's ranks; raise UserError if it fails.

    With a lower limit, mpirun hangs or crashes.
    """
    need = _FILES_OF_MPIRUN + _FILES_OF_A_RANK * job.on_a_host
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= need:
        return
    if hard != resource.RLIM_INFINITY and hard < need:
        raise UserError(
            f"[launch] open files: expected a limit of {need} for {job.on_a_host} ranks on a host, got {hard}; raise "
            f"it: ulimit -n {need}, or start fewer ranks"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))


def require_network() -> None:
    """Raise UserError if no network interface is up. mpirun and its ranks need one, even on a single host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked, _GET_FLAGS, struct.pack("16s16x", name.encode()[:15]))
            except OSError:
                continue
            if struct.unpack_from("h", answer, 16)[0] & _UP:
                return
    raise UserError(
        "[launch] network: expected an interface that is up, got none; mpirun needs one on a single host too: "
        "ip link set lo up, or train in one process without --ranks"
    )


def require_proc(folder: Path = Path("/proc")) -> None:
    """Raise UserError if /proc is not mounted. mpirun needs it to bind ranks, and ranks need it to find each other."""
    if not (folder / "self").exists():
        raise UserError(
            f"[launch] {folder}: expected the process file system, got none; mount it: mount -t proc proc {folder}, or "
            "train in one process without --ranks"
        )


def require_hosts(hosts: Sequence[str], answering: Callable[[Sequence[str]], Sequence[str]]) -> None:
    """Raise UserError with the hosts that do not answer, because mpirun waits for minutes for an unreachable host."""
    if any(name in os.environ for name in _OTHER_STARTERS):
        return
    if text := _silent(hosts, answering):
        raise UserError(text)


def _silent(hosts: Sequence[str], answering: Callable[[Sequence[str]], Sequence[str]]) -> str:
    there = answering(hosts)
    silent = [host for host in hosts if host not in there and not _is_here(host)]
    if not silent:
        return ""
    return (
        f"[launch] --hosts: {', '.join(silent)}: expected an answer to the remote shell, got none; check name, "
        f"network and keys: ssh {silent[0]} true"
    )


def _is_here(host: str) -> bool:
    """Return True if a host is this machine, which needs no remote shell."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))  # only addresses of this machine can be bound
    except OSError:
        return False
    return True


def cause(
    code: int, said: str, hosts: Sequence[str], answering: Callable[[Sequence[str]], Sequence[str]]
) -> tuple[int, str]:
    """Return the exit code of a job and a line about the cause; the line is "" if the ranks have reported the cause.

    code, said: exit code and messages of mpirun. answering: returns the hosts on which the remote shell answers.
    """
    if found := _LOST.search(said):
        name = signal.Signals(int(found[3])).name if int(found[3]) in signal.valid_signals() else found[3]
        cure = "memory may have run out (dmesg); " if name == "SIGKILL" else ""
        return code, (
            f"[launch] rank {found[1]} on {found[2]} was ended by {name} from outside or by a crash"
            f"{_when(said, found[1])}; {cure}the same command resumes from the last checkpoint"
        )
    if code == 128 + signal.SIGKILL:
        return code, "[launch] mpirun was killed (SIGKILL); the same command resumes from the last checkpoint"
    if code in _NOT_STARTED and (text := _silent(hosts, answering)):
        return UserError.exit_code, text
    if code in _NOT_STARTED or _UNABLE in said:
        return code, "[launch] mpirun could not start the ranks; its own message is above"
    return code, ""


def _when(said: str, rank: str) -> str:
    """Return the step and phase in a rank's last message, as ranks of other nodes received it; empty if unknown."""
    found = re.findall(_LAST_MESSAGE.format(rank), said)
    step, phase = max(((int(step), phase) for step, phase in found), default=(0, ""))
    return f", last heard from in step {step} ({phase})" if phase else ""
