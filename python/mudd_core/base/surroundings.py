"""The surroundings of a run: environment variables that change it, the machine, and the command that started it."""

from __future__ import annotations

import os
import resource
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from mudd_core.base.errors import UserError

# Variables that only the testing build reads (docs/running/start.md, docs/checkpoints.md).
OF_TESTING = ("MUDD_EMULATE", "MUDD_KILL_AT")
# Environment variables that change a run; they are printed when it starts.
ENVIRONMENT = (
    "MUDD_MAX_ISA",
    *OF_TESTING,
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "GOMP_CPU_AFFINITY",
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
)


# Variables with the number of processes that a launcher has started: Slurm, MPICH and similar, Open MPI.
PROCESS_COUNTS = ("SLURM_NTASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE")
# Variables with the rank of a process that can join others by MPI, as mpirun, srun --mpi=pmix and srun --mpi=pmi2 set
# them.
RANK_NUMBERS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")


def launcher_number(text: str) -> int:
    """Return the integer that a launcher set; -1 for any other string."""
    return int(text) if text.isdecimal() and len(text) < 10 else -1


_LOCAL_NUMBERS = ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")
# Pairs of launcher variables: the first must be less than the second, or at most equal to it.
_BELOW = (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"), _LOCAL_NUMBERS[::-1])
_AT_MOST = (("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"),)


def launcher_value(name: str) -> int | None:
    """Return the integer in a launcher's variable, None if unset. Raise UserError if Open MPI's is not an integer.

    The variables of other launchers may contain other strings (Slurm writes lists such as `2(x3)`), which are ignored.
    """
    text = os.environ.get(name)
    if text is None:
        return None
    low = 0 if name.endswith("RANK") else 1
    if (number := launcher_number(text)) < low:
        if not name.startswith("OMPI_"):
            return None
        raise UserError(
            f"[launch] {name}: expected a whole number from {low}, got '{text}'; if no launcher "
            f"started this process, type: env -u {name} <the command>"
        )
    return number


def _check_launcher() -> None:
    """Raise UserError for a launcher variable with an invalid value, or one that contradicts another variable."""
    for name in (*PROCESS_COUNTS, *RANK_NUMBERS, *_LOCAL_NUMBERS):
        launcher_value(name)
    for pairs, least in ((_BELOW, 1), (_AT_MOST, 0)):
        for name, limit in pairs:
            value, most = launcher_value(name), launcher_value(limit)
            if value is not None and most is not None and value > most - least:
                raise UserError(
                    f"[launch] {name}: expected at most {most - least} with {limit}={most}, got "
                    f"{value}; do not change the variables that the launcher sets"
                )


def started_processes() -> tuple[str, int]:
    """Return the name of a launcher's variable and the number of processes in it; ("", 1) without a launcher."""
    _check_launcher()
    # mpirun inside a Slurm job may start fewer processes than the job has slots, so its value is used.
    for name in reversed(PROCESS_COUNTS):
        count = launcher_value(name)
        if count is not None and (name == "OMPI_COMM_WORLD_SIZE" or count > 1):
            return name, count
    return "", 1


def is_rank() -> bool:
    """Return True if this process is one of several that a launcher with MPI has started."""
    return started_processes()[1] > 1 and any(name in os.environ for name in RANK_NUMBERS)


def is_first_rank() -> bool:
    """Return True if this process prints: rank 0 of a launcher, or a single process."""
    known = (number for number in map(launcher_value, RANK_NUMBERS) if number is not None)
    return not is_rank() or next(known, 0) == 0


def require_one_process(what: str = "training") -> None:
    """Raise UserError if a launcher has started several processes."""
    name, count = started_processes()
    if count > 1:
        raise UserError(
            f"[launch] {name}: expected 1 process, got {count}; {what} runs in one process here, "
            "because MPI reports no other process. Start the ranks with mpirun, srun --mpi=pmix or "
            f"launch.py --ranks (docs/cluster.md). For one process, type: env -u {name} <the command>"
        )


def require_address_space() -> None:
    """Raise UserError if the address space is limited so tightly that NumPy's BLAS would exit with code 1."""
    limit, least = resource.getrlimit(resource.RLIMIT_AS)[0], 160 + 8 * (os.cpu_count() or 1)
    if limit != resource.RLIM_INFINITY and limit < least << 20:
        raise UserError(
            f"[memory] ulimit -v: expected at least {least} MiB of address space, got {limit >> 20} MiB; raise the "
            "limit (ulimit -v unlimited)"
        )


def require_levels() -> None:
    """Raise UserError for an unknown level in MUDD_MAX_ISA or MUDD_EMULATE, and for variables of the testing build."""
    if not os.environ.keys() & {"MUDD_MAX_ISA", *OF_TESTING}:
        return
    from mudd_core import _core

    try:
        _core.check_levels()
    except ValueError as error:
        raise UserError(f"{error}; unset the variable, or select one of these") from None


def environment_text(precision: str) -> str:
    """Return the machine and the settings that affect speed and bits. precision: the value of train.precision."""
    from mudd_core import _core

    named = " ".join(f"{name}={os.environ[name]}" for name in ENVIRONMENT if name in os.environ)
    text = f"{_core.cpu_name()}, level {_core.isa()}, {_core.num_threads()} threads, {precision}"
    return text + (f", {named}" if named else "")


# Environment variable of the ranks that launch.py --ranks starts: the program as the user typed it.
PROGRAM = "MUDD_PROGRAM"
_LAUNCHER = "launch.py"
_CHECKOUT_LAUNCHER = Path(__file__).resolve().parents[3] / _LAUNCHER  # an installed wheel has none
_MODULES = ("__main__.py", "train.py", "preprocess.py")  # python -m mudd_core, mudd_core.train, ...


def in_notebook() -> bool:
    """Return True in a Jupyter kernel, False in IPython in a terminal."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def notes_stream() -> TextIO:
    """Return the stream of notes and progress: stderr; in a notebook stdout, because it shows stderr in red."""
    return sys.stdout if in_notebook() else sys.stderr


_typed: list[Sequence[str] | None] = [None]  # the arguments while a command line is run


@contextmanager
def command_line(arguments: Sequence[str]) -> Iterator[None]:
    """Make messages inside the block name commands instead of Python calls. arguments: of the command line."""
    before, _typed[0] = _typed[0], list(arguments)
    try:
        yield
    finally:
        _typed[0] = before


def is_command_line() -> bool:
    """Return True if this process runs a command line, False in a Python program or a notebook."""
    return _typed[0] is not None


def typed_arguments() -> list[str] | None:
    """Return the arguments of the command line that this process runs; None in a Python program or a notebook."""
    return None if _typed[0] is None else list(_typed[0])


def program() -> list[str]:
    """Return the argv prefix that starts this command: the console script, `python3 -m mudd_core` or launch.py."""
    started = Path(sys.argv[0]) if sys.argv else Path()
    if started.name == "mudd":
        return ["mudd"]
    as_module = started.name in _MODULES and "mudd_core" in (
        started.parent.name,
        started.parent.parent.name,
    )
    from_checkout = started.name == _LAUNCHER or _CHECKOUT_LAUNCHER.is_file()
    return ["python3", _LAUNCHER] if from_checkout and not as_module else ["python3", "-m", "mudd_core"]


def typed_program() -> list[str]:
    """Return program(), but with the path of launch.py that the user typed.

    The command then works from the same folder. A rank of --ranks was started with an absolute path instead, so it
    returns the program of the process that started it.
    """
    if PROGRAM in os.environ and any(name in os.environ for name in RANK_NUMBERS):
        return shlex.split(os.environ[PROGRAM])
    typed = sys.argv[0] if sys.argv else ""
    if Path(typed).name != _LAUNCHER or "/" not in typed:
        return program()
    return [typed] if os.access(typed, os.X_OK) else ["python3", typed]
