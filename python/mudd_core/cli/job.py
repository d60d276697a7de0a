"""`launch.py --ranks N`: start ranks with mpirun, convert signals to stops, restart after a lost rank."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.cli.argv import Invocation, parse
from mudd_core.cli.job_check import cause, require_files, require_hosts, require_network, require_proc
from mudd_core.cli.mpirun import Job, Machine, known_hosts, mpirun_argv, this_machine
from mudd_core.cli.mpirun_process import AGENT, Mpirun
from mudd_core.config.arguments import with_values
from mudd_core.config.values import whole
from mudd_core.dist.siblings import children

# Exit codes after which the job is not restarted: done, bad arguments, damaged input, full disk, stop, diverged, quit.
FINAL_CODES = (0, 2, 65, 74, 75, 76, 130, 143)
_THREADS = ("train.threads", "threads")
SIGNALS = {*_core.stop_signals(), _core.save_signal()}
_ANSWER_SECONDS = 10
_AGAIN_SECONDS = 2  # seconds until a stop request is repeated
_LOOK_SECONDS = 0.5
_ALONE_SECONDS = 2  # seconds that mpirun may run after its ranks have ended


@dataclass(frozen=True)
class JobRequest:
    """The job to start, the arguments of its ranks, and the number of restarts."""

    job: Job
    words: tuple[str, ...]
    max_restarts: int = 0


def requested_job(asked: Invocation) -> JobRequest:
    """Return the job of a command line; raise UserError for a bad value."""
    found, rest = asked.job.options, asked.job.words
    for_ranks = parse(rest)
    if rest and not for_ranks.runs_on_ranks:
        raise UserError(
            f"[arguments] {next(iter(found))}: {for_ranks.command} has no use of ranks, because one process does all "
            f"of it; leave out {' and '.join(found)}"
        )
    if "--ranks" not in found:
        raise UserError(
            f"[arguments] {next(iter(found))}: expected --ranks=N with it, got none; add --ranks=N"
        )
    hosts = tuple(host for host in found.get("--hosts", "").split(",") if host)
    if any(not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", host) for host in hosts):
        hosts = ()
    if "--hosts" in found and not hosts:
        raise UserError(
            f"[arguments] --hosts: expected names separated by commas, got '{found['--hosts']}'; "
            "ranks are distributed evenly, so hosts have no slots"
        )
    ranks = whole("[arguments] --ranks", found["--ranks"], 1, 1024)
    if len(hosts) > ranks:
        raise UserError(f"[arguments] --hosts: expected at most {ranks} (--ranks), got {len(hosts)}")
    job = Job(ranks, hosts, _threads(rest), known_hosts(os.environ))
    _require_hosts_with_ranks(job)
    restarts = whole("[arguments] --max-restarts", found.get("--max-restarts", "0"), 0, 10_000)
    return JobRequest(job, tuple(rest), restarts)


def _require_hosts_with_ranks(job: Job) -> None:
    """Raise UserError for a host that is named twice, and for hosts without a rank."""
    if twice := [host for host in dict.fromkeys(job.hosts) if job.hosts.count(host) > 1]:
        raise UserError(
            f"[arguments] --hosts: {twice[0]} is named twice; ranks are distributed evenly over its names"
        )
    if job.hosts and (used := -(-job.ranks // job.on_a_host)) < len(job.hosts):
        raise UserError(
            f"[arguments] --hosts: {job.ranks} ranks on {len(job.hosts)} hosts are {job.on_a_host} on each, so that "
            f"{', '.join(job.hosts[used:])} would have none; leave out {len(job.hosts) - used} of them"
        )


def _threads(words: Sequence[str]) -> int:
    """Return the threads per rank that the arguments set; 0 if they set none, or if the value is not a number."""
    value = "0"
    for item, given in with_values(words):
        value = given if item.name in _THREADS else value
    with contextlib.suppress(UserError):  # the ranks report the error
        return whole("", value, 0, 256)
    return 0


def run(wanted: JobRequest, program: Sequence[str], machine: Machine | None = None) -> int:
    """Start the job, and restart it if ranks or machines were lost; return the last exit code.

    program: the command of each rank, without its arguments.
    """
    job, restarts = wanted.job, 0
    machine = machine or this_machine()
    command = [*program, *wanted.words]
    require_files(job)
    require_network()
    require_proc()
    require_hosts(job.hosts, answering)
    with _Signals() as signals:
        while True:
            argv = mpirun_argv(job, machine, command, list(os.environ))
            code, said = _start(argv, signals, one_host=not job.hosts and job.spread == 1)
            final = code in FINAL_CODES or signals.asked
            if not final:
                code, why = cause(code, said, job.hosts, answering)
                _tell(why)
            if final or restarts == wanted.max_restarts:
                return code
            restarts += 1
            smaller = on_hosts(wanted.job, answering(wanted.job.hosts))
            if smaller is None:
                _tell(
                    f"[launch] the job ended with code {code}, and no host answers; check the hosts (ssh "
                    "HOST true), then type the same command to resume"
                )
                return code
            job = smaller
            where = f" on {', '.join(job.hosts)}" if job.hosts else ""
            _tell(
                f"[launch] the job ended with code {code}; restart {restarts} of "
                f"{wanted.max_restarts} with {job.ranks} rank{'s' * (job.ranks > 1)}{where}"
            )


def on_hosts(job: Job, hosts: tuple[str, ...]) -> Job | None:
    """Return the job on the remaining hosts, with the largest world size up to the old one that divides the shards.

    The number of shards is a power of two, so all smaller powers of two divide it as well.
    """
    if len(hosts) == len(job.hosts):
        return job
    most = min(job.ranks, len(hosts) * job.on_a_host)
    if most == 0:
        return None
    ranks = 1 << (most.bit_length() - 1)
    return replace(job, ranks=ranks, hosts=hosts[:ranks])


def answering(hosts: Sequence[str], agent: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the hosts on which the remote shell can run a command; all hosts are tried at the same time.

    agent: the remote shell; None: the shell that Open MPI would use.
    """
    if agent is None:
        named = shlex.split(os.environ.get(AGENT, ""))
        agent = named or ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"]
    asked_of = {}
    for host in hosts:
        try:
            asked_of[host] = subprocess.Popen(
                [*agent, host, "true"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise UserError(f"[launch] --hosts: {agent[0]}: {error.strerror}") from error
    return tuple(host for host, process in asked_of.items() if _succeeded(process))


def _succeeded(process: subprocess.Popen[bytes]) -> bool:
    try:
        return process.wait(_ANSWER_SECONDS) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


class _Signals:
    """Handlers that turn TERM, INT and USR1 into USR1 for mpirun, which forwards it to all ranks.

    A second TERM or INT kills mpirun.
    """

    def __init__(self) -> None:
        self.asked = False
        self.process: subprocess.Popen[bytes] | None = None
        self._before: dict[int, Callable[..., object] | int | None] = {}

    def __enter__(self) -> _Signals:
        for number in SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
                self._before[number] = signal.signal(number, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            if handler is not None:  # a handler that Python did not install is None, and cannot be restored
                signal.signal(number, handler)

    def _on_signal(self, number: int, _: object) -> None:
        passed_on = signal.Signals(_core.save_signal())
        if number != passed_on:
            passed_on = signal.SIGUSR1
            if self.asked and number in _core.quit_signals():
                passed_on = signal.SIGTERM
            self.asked = True
        if self.process is not None:
            self.process.send_signal(passed_on)


def _start(argv: list[str], signals: _Signals, one_host: bool) -> tuple[int, str]:
    """Run mpirun to its end; return its exit code (128 + n if signal n ended it) and its last messages."""
    if signals.asked:  # the request came between two starts
        return 75, ""
    with Mpirun(argv, one_host) as mpirun:
        signals.process = mpirun.process
        if signals.asked:  # the request came while mpirun started
            mpirun.process.send_signal(signal.SIGUSR1)
        code = _waited(mpirun.process, signals, mpirun.last_code)
        signals.process = None
        code = 128 - code if code < 0 else code
        # mpirun was killed after its ranks had ended
        if code == 128 + signal.SIGKILL and mpirun.last_code.is_file():
            code = int(mpirun.last_code.read_text(encoding="ascii"))
    # The stop request killed mpirun or a rank before it had a handler, so nothing was trained.
    return 75 if signals.asked and code == 128 + signal.SIGUSR1 else code, mpirun.said


def _waited(process: subprocess.Popen[bytes], signals: _Signals, last_words: Path) -> int:
    """Return the exit code of mpirun.

    Kill mpirun if it outlives its ranks, because version 4.1.4 may deadlock after a rank is killed.
    """
    had_ranks, alone_since = False, time.monotonic()
    asked_at = time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOK_SECONDS)
        now, ranks = time.monotonic(), children(process.pid)
        had_ranks = had_ranks or bool(ranks)
        if not had_ranks or (ranks and not last_words.is_file()):
            alone_since = now
        elif now - alone_since > _ALONE_SECONDS:
            _tell("[launch] the ranks have ended but mpirun has not, so it is killed")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        if not signals.asked:
            asked_at = now
        elif now - asked_at > _AGAIN_SECONDS:
            # mpirun loses signals that arrive before its ranks have started, so the request is repeated.
            asked_at = now
            process.send_signal(signal.SIGUSR1)


def program() -> list[str]:
    """Return the command of a rank, with absolute paths because a remote shell starts in another folder."""
    started = Path(sys.argv[0]).absolute()
    module = getattr(sys.modules["__main__"], "__spec__", None)  # `python -m` has put its command into argv
    if module is None and started.is_file() and started.suffix == ".py":
        return [sys.executable, str(started)]
    return [sys.executable, "-m", "mudd_core"]


def _tell(text: str) -> None:
    if text:
        print(text, file=sys.stderr, flush=True)
