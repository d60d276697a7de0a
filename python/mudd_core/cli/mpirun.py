"""The mpirun command of a job with several ranks, as a pure function of job and machine."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.surroundings import ENVIRONMENT, launcher_number
from mudd_core.cli.names import TYPED
from mudd_core.dist.open_mpi import find_mpirun
from mudd_core.run.ranks.core_kinds import fast_cores
from mudd_core.run.ranks.rank_cores import usable_cores

_HOSTFILE = "OMPI_MCA_orte_default_hostfile"  # the MPI operator sets this variable in its launcher
_SHELLS = ("ssh", "rsh")  # remote shells that mpirun looks for
_STARTERS = ("plm", "plm_rsh_agent")  # variables that select another launcher
# Variables that ranks on other hosts must get too.
_PASSED_ON = ("PYTHONPATH", "PATH", "LD_LIBRARY_PATH", "MUDD_LAUNCHED", TYPED, *ENVIRONMENT)


@dataclass(frozen=True)
class Machine:
    """Properties of the machine that determine mpirun's options.

    cores: the physical cores that this process may use, without slow ones. threads: the hardware threads of these
    cores. whole: no affinity mask or quota restricts this process, and no core is slow. cma: a process may copy from
    another process's memory. shell: mpirun finds a program that starts processes on other hosts.
    """

    mpirun: str
    cores: int
    threads: int
    whole: bool = True
    root: bool = False
    cma: bool = True
    shell: bool = True


@dataclass(frozen=True)
class Job:
    """A requested job. hosts: empty means this machine, or the `spread` hosts that mpirun knows.

    threads: the threads per rank; 0: an equal part of the cores.
    """

    ranks: int
    hosts: tuple[str, ...] = ()
    threads: int = 0
    spread: int = 1

    @property
    def on_a_host(self) -> int:
        """The number of ranks on the host that has the most."""
        return -(-self.ranks // max(1, len(self.hosts) or self.spread))


def known_hosts(environment: Mapping[str, str]) -> int:
    """Return the number of hosts that mpirun uses by default, as set by an MPIJob or a Slurm job."""
    try:
        lines = Path(environment[_HOSTFILE]).read_text(encoding="utf-8").splitlines()
    except (KeyError, OSError):
        return max(1, launcher_number(environment.get("SLURM_JOB_NUM_NODES", "")))
    return max(1, sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in lines))


def threads_of(job: Job, machine: Machine) -> int:
    """Return the threads per rank: the requested number, or an equal part of a host's cores."""
    return job.threads or max(1, machine.threads // job.on_a_host)


def mpirun_argv(
    job: Job, machine: Machine, command: Sequence[str], environment: Sequence[str] = ()
) -> list[str]:
    """Return the argv of mpirun.

    command: the command of each rank. environment: the names of the variables that are set here.
    """
    threads = threads_of(job, machine)
    argv = [machine.mpirun, "-n", str(job.ranks)]
    if job.hosts:
        argv += ["--host", ",".join(f"{host}:{job.on_a_host}" for host in job.hosts)]
    if machine.root:
        argv.append("--allow-run-as-root")
    if machine.whole and job.on_a_host * threads <= machine.cores:
        argv += ["--bind-to", "core", "--map-by", f"slot:PE={threads}"]
    else:
        argv += ["--bind-to", "none"]
    if job.on_a_host > machine.cores:
        argv += ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]
    if not (machine.shell or job.hosts or job.spread > 1):
        argv += [
            "--mca",
            "plm",
            "isolated",
        ]  # without this mpirun does not start, although it needs no shell here
    if not machine.cma:
        argv += ["--mca", "btl_vader_single_copy_mechanism", "none"]
    for name in (name for name in _PASSED_ON if name in environment and name != "OMP_NUM_THREADS"):
        argv += ["-x", name]
    return [*argv, "-x", f"OMP_NUM_THREADS={threads}", *command]


def this_machine() -> Machine:
    """Return the properties of this machine; raise UserError with the packages to install if Open MPI is missing."""
    mask = os.sched_getaffinity(0)
    fast = fast_cores(mask)
    usable = min(usable_cores(), len(fast))
    siblings = {_siblings(cpu) for cpu in fast}
    return Machine(
        mpirun=find_mpirun(),
        cores=min(len(siblings), usable),
        threads=usable,
        whole=len(mask) == os.cpu_count() and usable == len(mask),
        root=os.geteuid() == 0,
        cma=cma_allowed(),
        shell=any(map(shutil.which, _SHELLS)) or any(f"OMPI_MCA_{name}" in os.environ for name in _STARTERS),
    )


def _siblings(cpu: int) -> str:
    """Return the hardware threads of a CPU's core."""
    file = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError:
        return str(cpu)


def cma_allowed() -> bool:
    """Return True if a process may copy from another process's memory; containers may forbid the system call."""

    class Range(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))

    source, target = ctypes.create_string_buffer(b"x", 1), ctypes.create_string_buffer(1)
    here, there = Range(ctypes.addressof(target), 1), Range(ctypes.addressof(source), 1)
    try:
        copy = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except (OSError, AttributeError):
        return False
    copied = copy(
        os.getpid(), ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1), 0
    )
    return copied == 1 and target.raw == b"x"
